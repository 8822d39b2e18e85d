"""The handler of `racecheck.exact.handler` as machine code for x86-64: bytes, instruction, remark.

What lies at which offset of the state is said by `handler.State`. The tests run it.
"""

CODE = """
488b05f1ffffff   mov rax, [state]                  ; the state, whose address lies before the code
53               push rbx
55               push rbp
4154             push r12
4156             push r14
4157             push r15
4883ec10         sub rsp, 16                       ; errno's place; calls need the stack at a multiple of 16
4889c3           mov rbx, rax
89fd             mov ebp, edi                      ; signal number
4989f4           mov r12, rsi                      ; siginfo
ff5328           call [rbx + 40]                   ; errno_location
4989c7           mov r15, rax
8b00             mov eax, [rax]
890424           mov [rsp], eax                    ; errno of the interrupted code
41837c240800     cmp dword ptr [r12 + 8], 0        ; sent by kill, no fault: not ours
0f8e8c000000     jle handover
4d8b742410       mov r14, [r12 + 16]               ; the address
488b4b58         mov rcx, [rbx + 88]
488b4360         mov rax, [rbx + 96]
next:
4885c9           test rcx, rcx
7469             je stray
48ffc9           dec rcx
488b10           mov rdx, [rax]
488b7008         mov rsi, [rax + 8]
4883c010         add rax, 16
4939d6           cmp r14, rdx
72e8             jb next
4939f6           cmp r14, rsi
73e3             jae next
4c89f7           mov rdi, r14
48237b30         and rdi, [rbx + 48]
488b7338         mov rsi, [rbx + 56]
ba03000000       mov edx, 3
ff5310           call [rbx + 16]                   ; mprotect(page, page_size, read and write)
85c0             test eax, eax
754b             jne handover
ff5308           call [rbx + 8]                    ; this_thread
4885c0           test rax, rax
7407             je native
4c89f7           mov rdi, r14
ff13             call [rbx]                        ; note(address)
eb18             jmp done
native:
b801000000       mov eax, 1
f0480fc14368     lock xadd [rbx + 104], rax
25ffff0000       and eax, 0xffff
488b4b70         mov rcx, [rbx + 112]
4c8934c1         mov [rcx + rax*8], r14
done:
8b0424           mov eax, [rsp]
418907           mov [r15], eax
4883c410         add rsp, 16
415f             pop r15
415e             pop r14
415c             pop r12
5d               pop rbp
5b               pop rbx
c3               ret
stray:
b801000000       mov eax, 1
f0480fc14340     lock xadd [rbx + 64], rax
4883f840         cmp rax, 64
72dc             jb done                           ; once more: its span may have been disarmed meanwhile
handover:
488b7350         mov rsi, [rbx + 80]               ; the handler before ours
b801000000       mov eax, 1
48874348         xchg [rbx + 72], rax
4885c0           test rax, rax
7404             je install
488b7378         mov rsi, [rbx + 120]              ; it came back to us: SIG_DFL
install:
89ef             mov edi, ebp
31d2             xor edx, edx
ff5318           call [rbx + 24]                   ; sigaction: the fault happens again, without us
41837c240800     cmp dword ptr [r12 + 8], 0
7fb7             jg done
89ef             mov edi, ebp
ff5320           call [rbx + 32]                   ; raise: a sent signal does not come again by itself
ebb0             jmp done
"""
