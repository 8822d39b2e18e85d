"""The handler of `racecheck.exact.handler` as machine code for AArch64: bytes, instruction, remark.

What lies at which offset of the state is said by `handler.State`. Every branch of it was
run in an emulator (Unicorn), none on such a machine.
"""

CODE = """
c9ffff58 ldr x9, state                     ; the state, whose address lies before the code
fd7bbba9 stp x29, x30, [sp, #-80]!
f35301a9 stp x19, x20, [sp, #16]
f55b02a9 stp x21, x22, [sp, #32]
f76303a9 stp x23, x24, [sp, #48]
f92300f9 str x25, [sp, #64]
f30309aa mov x19, x9
f403002a mov w20, w0                       ; signal number
f50301aa mov x21, x1                       ; siginfo
681640f9 ldr x8, [x19, #40]
00013fd6 blr x8                            ; errno_location
f70300aa mov x23, x0
180040b9 ldr w24, [x0]                     ; errno of the interrupted code
a90a40b9 ldr w9, [x21, #8]
3f010071 cmp w9, #0
ed050054 b.le handover                     ; sent by kill, no fault: not ours
b90a40f9 ldr x25, [x21, #16]               ; the address
6a2e40f9 ldr x10, [x19, #88]
6b3240f9 ldr x11, [x19, #96]
next:
8a0400b4 cbz x10, stray
4a0500d1 sub x10, x10, #1
6c35c1a8 ldp x12, x13, [x11], #16
3f030ceb cmp x25, x12
83ffff54 b.lo next
3f030deb cmp x25, x13
42ffff54 b.hs next
691a40f9 ldr x9, [x19, #48]
2003098a and x0, x25, x9
611e40f9 ldr x1, [x19, #56]
62008052 mov w2, #3
680a40f9 ldr x8, [x19, #16]
00013fd6 blr x8                            ; mprotect(page, page_size, read and write)
c0030035 cbnz w0, handover
680640f9 ldr x8, [x19, #8]
00013fd6 blr x8                            ; this_thread
a00000b4 cbz x0, native
e00319aa mov x0, x25
680240f9 ldr x8, [x19]
00013fd6 blr x8                            ; note(address)
09000014 b done
native:
68a20191 add x8, x19, #104
count:
09fd5fc8 ldaxr x9, [x8]
2a050091 add x10, x9, #1
0afd0bc8 stlxr w11, x10, [x8]
abffff35 cbnz w11, count
293d4092 and x9, x9, #0xffff
683a40f9 ldr x8, [x19, #112]
197929f8 str x25, [x8, x9, lsl #3]
done:
f80200b9 str w24, [x23]
f92340f9 ldr x25, [sp, #64]
f76343a9 ldp x23, x24, [sp, #48]
f55b42a9 ldp x21, x22, [sp, #32]
f35341a9 ldp x19, x20, [sp, #16]
fd7bc5a8 ldp x29, x30, [sp], #80
c0035fd6 ret
stray:
68020191 add x8, x19, #64
again:
09fd5fc8 ldaxr x9, [x8]
2a050091 add x10, x9, #1
0afd0bc8 stlxr w11, x10, [x8]
abffff35 cbnz w11, again
3f0101f1 cmp x9, #64
63feff54 b.lo done                         ; once more: its span may have been disarmed meanwhile
handover:
612a40f9 ldr x1, [x19, #80]                ; the handler before ours
68220191 add x8, x19, #72
2a0080d2 mov x10, #1
swap:
09fd5fc8 ldaxr x9, [x8]
0afd0bc8 stlxr w11, x10, [x8]
cbffff35 cbnz w11, swap
490000b4 cbz x9, install
613e40f9 ldr x1, [x19, #120]               ; it came back to us: SIG_DFL
install:
e003142a mov w0, w20
020080d2 mov x2, #0
680e40f9 ldr x8, [x19, #24]
00013fd6 blr x8                            ; sigaction: the fault happens again, without us
a90a40b9 ldr w9, [x21, #8]
3f010071 cmp w9, #0
8cfcff54 b.gt done
e003142a mov w0, w20
681240f9 ldr x8, [x19, #32]
00013fd6 blr x8                            ; raise: a sent signal does not come again by itself
e0ffff17 b done
"""
