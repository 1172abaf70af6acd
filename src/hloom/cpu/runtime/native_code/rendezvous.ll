; Where devices wait for each other. Everybody who sits at a meeting can read what the others have put at their
; seats; `hloom.cpu.runtime.rendezvous` is the Python side.

%seat = type { ptr, i64, i64, i64, [0 x ptr] } ; meeting, position, number of seats, form; places of arrays

%meeting = type {
  i32, [124 x i8],      ; 0 arrived
  i32, [124 x i8],      ; 2 generation: how often everybody was there
  i32, i32, [120 x i8], ; 4 sleepers, spins before a thread sleeps
  [0 x ptr]             ; 7 seats
}

@patience = internal constant { i64, i64 } { i64 0, i64 10000000 } ; seconds and nanoseconds

; Arrive, and go on when all have arrived. Step 1 sits down first and compares forms afterwards: others than one's
; own are told to the host, await(number, -1). Step 2 stays, step 3 gets up afterwards. Who has slept twice asks the
; host to wait, await(number, generation), which knows when that is in vain. The result is 0, or what the host gave.
define i32 @hloom_meet(ptr %seat, i64 %number, ptr %await, i32 %step) nounwind {
entry:
  %meeting = load ptr, ptr %seat
  %position.at = getelementptr %seat, ptr %seat, i64 0, i32 1
  %mine = load i64, ptr %position.at
  %own.at = getelementptr %meeting, ptr %meeting, i64 0, i32 7, i64 %mine
  store atomic ptr %seat, ptr %own.at monotonic, align 8
  %count.at = getelementptr %seat, ptr %seat, i64 0, i32 2
  %count = load i64, ptr %count.at
  %arrived.at = getelementptr %meeting, ptr %meeting, i64 0, i32 0
  %generation.at = getelementptr %meeting, ptr %meeting, i64 0, i32 2
  %sleepers.at = getelementptr %meeting, ptr %meeting, i64 0, i32 4
  %generation = load atomic i32, ptr %generation.at seq_cst, align 4
  %before = atomicrmw add ptr %arrived.at, i32 1 seq_cst
  %with = add i32 %before, 1
  %with.wide = zext i32 %with to i64
  %last = icmp eq i64 %with.wide, %count
  br i1 %last, label %open, label %prepare

open:
  store atomic i32 0, ptr %arrived.at seq_cst, align 4
  %g = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %met

wake:
  call void @futex_wake(ptr %generation.at)
  br label %met

prepare:
  %spins.at = getelementptr %meeting, ptr %meeting, i64 0, i32 5
  %most = load i32, ptr %spins.at
  br label %watch

watch:
  %spins = phi i32 [ 0, %prepare ], [ %spins.next, %spin ]
  %seen = load atomic i32, ptr %generation.at acquire, align 4
  %same = icmp eq i32 %seen, %generation
  br i1 %same, label %consider, label %met

consider:
  %patient = icmp ult i32 %spins, %most
  br i1 %patient, label %spin, label %sleep

spin:
  call void @pause()
  %spins.next = add i32 %spins, 1
  br label %watch

sleep:
  %slept = phi i32 [ 0, %consider ], [ %slept.next, %again ]
  %s1 = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  %call = load i64, ptr @futex_call
  %r = call i64 (i64, ...) @syscall(i64 %call, ptr %generation.at, i32 128, i32 %generation, ptr @patience, ptr null, i32 0)
  %s2 = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  %now = load atomic i32, ptr %generation.at acquire, align 4
  %still = icmp eq i32 %now, %generation
  br i1 %still, label %again, label %met

again:
  %slept.next = add i32 %slept, 1
  %once = icmp ult i32 %slept.next, 2
  br i1 %once, label %sleep, label %ask

ask:
  %generation.wide = zext i32 %generation to i64
  %status = call i32 %await(i64 %number, i64 %generation.wide)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %give.up, label %met

give.up:
  ret i32 %status

met:
  switch i32 %step, label %done [ i32 1, label %compare
                                  i32 3, label %rise ]

rise:
  store atomic ptr null, ptr %own.at monotonic, align 8
  ret i32 0

compare:
  %form.at = getelementptr %seat, ptr %seat, i64 0, i32 3
  %form = load i64, ptr %form.at
  br label %next

next:
  %position = phi i64 [ 0, %compare ], [ %position.next, %equal ]
  %all = icmp uge i64 %position, %count
  br i1 %all, label %done, label %look

look:
  %other.at = getelementptr %meeting, ptr %meeting, i64 0, i32 7, i64 %position
  %other = load ptr, ptr %other.at
  %other.form.at = getelementptr %seat, ptr %other, i64 0, i32 3
  %other.form = load i64, ptr %other.form.at
  %fits = icmp eq i64 %other.form, %form
  br i1 %fits, label %equal, label %differ

equal:
  %position.next = add i64 %position, 1
  br label %next

differ:
  %told = call i32 %await(i64 %number, i64 -1)
  ret i32 %told

done:
  ret i32 0
}
