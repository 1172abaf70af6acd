; Rendezvous of devices. Each participant can read the addresses that the others have published in their records;
; `hloom.cpu.runtime.rendezvous` is the Python side. If some participants are in other processes, the last one of this
; process to arrive exchanges arrays with them (`exchange.ll`) before the others continue.

; rendezvous, position, number of participants, form, participants of this process, exchange or null, position of the
; participant whose operand a permutation brings here or -1, fiber of the device or null (`gang.ll`); addresses
%participant = type { ptr, i64, i64, i64, i64, ptr, i64, ptr, [0 x ptr] }

%rendezvous = type {
  i32, [124 x i8],      ; 0 arrived
  i32, [124 x i8],      ; 2 generation: times that all have arrived
  i32, i32, [120 x i8], ; 4 sleepers, spins before a thread sleeps
  [0 x ptr]             ; 7 participant records
}

@patience = internal constant { i64, i64 } { i64 0, i64 10000000 } ; seconds and nanoseconds

; Return 1 if the operands of all participants have this form.
define internal i1 @same_forms(ptr %rendezvous, i64 %count, i64 %form) nounwind {
entry:
  br label %next

next:
  %position = phi i64 [ 0, %entry ], [ %position.next, %equal ]
  %all = icmp uge i64 %position, %count
  br i1 %all, label %same, label %look

look:
  %other.at = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 7, i64 %position
  %other = load ptr, ptr %other.at
  %other.form.at = getelementptr %participant, ptr %other, i64 0, i32 3
  %other.form = load i64, ptr %other.form.at
  %fits = icmp eq i64 %other.form, %form
  br i1 %fits, label %equal, label %differ

equal:
  %position.next = add i64 %position, 1
  br label %next

same:
  ret i1 true

differ:
  ret i1 false
}

; Arrive, and continue when all have arrived. Step 1 publishes the record first and compares the forms of all afterwards;
; a difference is reported to the host, await(number, -1). Step 3 withdraws the record afterwards. A fiber lets the other
; devices of its thread run meanwhile. A thread that waits spins for a moment and sleeps, because it may have the core of
; the one that it waits for; one that has slept twice lets the host wait, await(number, generation), which detects
; deadlocks. Return 0, or 1 if that failed.
define i32 @hloom_rendezvous(ptr %participant, i64 %number, i32 %step) nounwind {
entry:
  %rendezvous = load ptr, ptr %participant
  %position.at = getelementptr %participant, ptr %participant, i64 0, i32 1
  %mine = load i64, ptr %position.at
  %own.at = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 7, i64 %mine
  store atomic ptr %participant, ptr %own.at monotonic, align 8
  %count.at = getelementptr %participant, ptr %participant, i64 0, i32 2
  %count = load i64, ptr %count.at
  %form.at = getelementptr %participant, ptr %participant, i64 0, i32 3
  %form = load i64, ptr %form.at
  %here.at = getelementptr %participant, ptr %participant, i64 0, i32 4
  %here = load i64, ptr %here.at
  %arrived.at = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 0
  %generation.at = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 2
  %sleepers.at = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 4
  %generation = load atomic i32, ptr %generation.at seq_cst, align 4
  %before = atomicrmw add ptr %arrived.at, i32 1 seq_cst
  %with = add i32 %before, 1
  %with.wide = zext i32 %with to i64
  %last = icmp eq i64 %with.wide, %here
  br i1 %last, label %lead, label %prepare

lead:
  %exchange.at = getelementptr %participant, ptr %participant, i64 0, i32 5
  %exchange = load ptr, ptr %exchange.at
  %alone = icmp eq ptr %exchange, null
  %departs = icmp eq i32 %step, 3
  %no.exchange = or i1 %alone, %departs
  br i1 %no.exchange, label %open, label %begin

begin:
  call void @begin_exchange(ptr %exchange, i32 %step)
  %fit = call i1 @same_forms(ptr %rendezvous, i64 %count, i64 %form)
  br i1 %fit, label %transfer, label %open

transfer:
  %transferred = call i32 @run_exchange(ptr %exchange, i64 %number, i32 %step)
  %lost = icmp ne i32 %transferred, 0
  br i1 %lost, label %give.up, label %open

open:
  store atomic i32 0, ptr %arrived.at seq_cst, align 4
  %g = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %complete

wake:
  call void @futex_wake(ptr %generation.at)
  br label %complete

prepare:
  %fiber.at = getelementptr %participant, ptr %participant, i64 0, i32 7
  %fiber = load ptr, ptr %fiber.at
  %has.thread = icmp eq ptr %fiber, null
  br i1 %has.thread, label %begin.watch, label %let.others

let.others:
  call void @fiber_wait(ptr %fiber, ptr %generation.at, i32 %generation, i64 %number)
  br label %complete

begin.watch:
  %spins.at = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 5
  %most = load i32, ptr %spins.at
  br label %watch

watch:
  %spins = phi i32 [ 0, %begin.watch ], [ %spins.next, %spin ]
  %seen = load atomic i32, ptr %generation.at acquire, align 4
  %same = icmp eq i32 %seen, %generation
  br i1 %same, label %consider, label %complete

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
  br i1 %still, label %again, label %complete

again:
  %slept.next = add i32 %slept, 1
  %once = icmp ult i32 %slept.next, 2
  br i1 %once, label %sleep, label %ask

ask:
  %generation.wide = zext i32 %generation to i64
  %status = call i32 @await(i64 %number, i64 %generation.wide)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %give.up, label %complete

give.up:
  ret i32 1

complete:
  switch i32 %step, label %done [ i32 1, label %compare
                                  i32 3, label %withdraw ]

withdraw:
  store atomic ptr null, ptr %own.at monotonic, align 8
  ret i32 0

compare:
  %same.forms = call i1 @same_forms(ptr %rendezvous, i64 %count, i64 %form)
  br i1 %same.forms, label %done, label %differ

differ:
  %its.fiber.at = getelementptr %participant, ptr %participant, i64 0, i32 7
  %its.fiber = load ptr, ptr %its.fiber.at
  %thread.differs = icmp eq ptr %its.fiber, null
  br i1 %thread.differs, label %tell, label %fiber.differs

fiber.differs:
  call void @fiber_differs(ptr %its.fiber, i64 %number)
  ret i32 1

tell:
  %told = call i32 @await(i64 %number, i64 -1)
  ret i32 1

done:
  ret i32 0
}
