/* The slot theorem for Spin: with all premises kept, no write finds its slot's last reader open, if S >= D.
 *
 *     spin -a -DS=2 -DD=2 slots.pml && cc -DSAFETY -o pan pan.c && ./pan
 *
 * S slots; D = run-ahead + 1 steps may be in flight. open[s] is how many completion waits, from now on, it
 * takes until one covers the last reader of slot s; 0 if the host is behind it.
 */
#ifndef S
#define S 2
#endif
#ifndef D
#define D 2
#endif

byte open[S];
byte in_flight = 0;
byte slot = 0;
byte i;

active proctype host() {
    do
    :: atomic { in_flight < D ->
           assert(open[slot] == 0);  /* the write */
           in_flight++;
           open[slot] = in_flight;   /* copy and replay are issued, the event is recorded behind them */
           slot = (slot + 1) % S
       }
    :: atomic { in_flight > 0 ->     /* the completion wait for the oldest step */
           in_flight--;
           i = 0;
           do
           :: i < S ->
               if
               :: open[i] > 0 -> open[i]--
               :: else -> skip
               fi;
               i++
           :: else -> break
           od
       }
    od
}
