; Devices that one thread runs in turns.
;
; Each device has a stack of its own, a fiber. One that waits for others in a rendezvous leaves the processor to the
; next one at once, and continues when the generation has changed. So no device waits for a thread that the system has
; not scheduled, whatever the number of cores and of other programs. Devices that never meet need no stacks: they run one
; after the other, or as tasks of the thread pool. What needs Python (a look for signals) runs on the stack of the thread. `hloom.cpu.runtime.gang` is
; the Python side.

%gang = type {
  i32, i32,       ;  0 lock: 0 free, 1 taken, 2 taken and waited for; runs in a row whose sections were long
  i64, i64,       ;  2 devices, whether they have stacks
  ptr, i64,       ;  4 recycled memory, bytes of the arena of a device
  ptr, ptr, ptr,  ;  6 functions of the C library: getcontext, makecontext, swapcontext
  i64, i64,       ;  9 times that a fiber was resumed, whether devices that compute for long use several threads
  [4 x i64],
  [1012 x i64],   ; 12 ucontext_t of the thread
  [0 x %fiber]    ; 13 the devices
}

%fiber = type {
  ptr, ptr, ptr,  ;  0 gang, program, the program's context
  ptr, i64,       ;  3 stack, its bytes
  ptr, ptr, ptr,  ;  5 addresses of inputs and of outputs, arena
  i64,            ;  8 state: 0 runs, 1 waits, 2 asks for a look for signals, 3 has finished, 4 meets other operands
  ptr, i32, i32,  ;  9 word for which it waits, the value that must change; status of the program or of the look
  i64,            ; 12 number of the call in which it waits
  [1012 x i64]    ; 13 ucontext_t
}

; Return true if the devices shall run in threads of their own: they meet, and sections were long in several runs.
define i1 @hloom_gang_parts(ptr %gang) nounwind {
  %long.at = getelementptr %gang, ptr %gang, i64 0, i32 1
  %long = load i32, ptr %long.at
  %parts.at = getelementptr %gang, ptr %gang, i64 0, i32 10
  %parts = load i64, ptr %parts.at
  %often = icmp uge i32 %long, 3
  %may = icmp ne i64 %parts, 0
  %apart = and i1 %often, %may
  ret i1 %apart
}

; Take a gang; return 0 if another thread has it, or if its devices shall run in threads.
define i32 @hloom_gang_take(ptr %gang) nounwind {
entry:
  %apart = call i1 @hloom_gang_parts(ptr %gang)
  br i1 %apart, label %no, label %try

try:
  %swap = cmpxchg ptr %gang, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %swap, 1
  br i1 %taken, label %yes, label %no

yes:
  ret i32 1

no:
  ret i32 0
}

; Take a gang when no other thread has it.
define void @hloom_gang_wait(ptr %gang) nounwind {
entry:
  %swap = cmpxchg ptr %gang, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %swap, 1
  br i1 %taken, label %done, label %wait

wait:
  %before = atomicrmw xchg ptr %gang, i32 2 acquire
  %free = icmp eq i32 %before, 0
  br i1 %free, label %done, label %sleep

sleep:
  call void @futex_wait(ptr %gang, i32 2)
  br label %wait

done:
  ret void
}

define void @hloom_gang_leave(ptr %gang) nounwind {
entry:
  %before = atomicrmw xchg ptr %gang, i32 0 release
  %waited = icmp eq i32 %before, 2
  br i1 %waited, label %wake, label %done

wake:
  call void @futex_wake(ptr %gang)
  br label %done

done:
  ret void
}

define internal void @fiber_main(i32 %low, i32 %high) nounwind {
  %low.64 = zext i32 %low to i64
  %high.64 = zext i32 %high to i64
  %upper = shl i64 %high.64, 32
  %address = or i64 %upper, %low.64
  %fiber = inttoptr i64 %address to ptr
  %status = call i32 @run_device(ptr %fiber)
  %status.at = getelementptr %fiber, ptr %fiber, i64 0, i32 11
  store i32 %status, ptr %status.at
  call void @leave_fiber(ptr %fiber, i64 3)
  ret void
}

define internal i32 @run_device(ptr %fiber) nounwind {
  %program.at = getelementptr %fiber, ptr %fiber, i64 0, i32 1
  %program = load ptr, ptr %program.at
  %context.at = getelementptr %fiber, ptr %fiber, i64 0, i32 2
  %context = load ptr, ptr %context.at
  %sources.at = getelementptr %fiber, ptr %fiber, i64 0, i32 5
  %sources = load ptr, ptr %sources.at
  %targets.at = getelementptr %fiber, ptr %fiber, i64 0, i32 6
  %targets = load ptr, ptr %targets.at
  %arena.at = getelementptr %fiber, ptr %fiber, i64 0, i32 7
  %arena = load ptr, ptr %arena.at
  %status = call i32 %program(ptr %sources, ptr %targets, ptr %arena, ptr %context)
  ret i32 %status
}

; Return to the thread's stack in a state, until the thread resumes the fiber.
define internal void @leave_fiber(ptr %fiber, i64 %state) nounwind {
  %state.at = getelementptr %fiber, ptr %fiber, i64 0, i32 8
  store i64 %state, ptr %state.at
  %gang = load ptr, ptr %fiber
  %swap.at = getelementptr %gang, ptr %gang, i64 0, i32 8
  %swap = load ptr, ptr %swap.at
  %own = getelementptr %fiber, ptr %fiber, i64 0, i32 13
  %thread = getelementptr %gang, ptr %gang, i64 0, i32 12
  %s = call i32 %swap(ptr %own, ptr %thread)
  ret void
}

; Let the other devices run until a word has another value than the given one; the number is that of the call.
define internal void @fiber_wait(ptr %fiber, ptr %word, i32 %value, i64 %number) nounwind {
  %word.at = getelementptr %fiber, ptr %fiber, i64 0, i32 9
  store ptr %word, ptr %word.at
  %value.at = getelementptr %fiber, ptr %fiber, i64 0, i32 10
  store i32 %value, ptr %value.at
  %number.at = getelementptr %fiber, ptr %fiber, i64 0, i32 12
  store i64 %number, ptr %number.at
  call void @leave_fiber(ptr %fiber, i64 1)
  ret void
}

; End the run because the operands of a call do not fit those of other devices.
define internal void @fiber_differs(ptr %fiber, i64 %number) nounwind {
  %number.at = getelementptr %fiber, ptr %fiber, i64 0, i32 12
  store i64 %number, ptr %number.at
  call void @leave_fiber(ptr %fiber, i64 4)
  ret void
}

; Look for signals on the thread's stack, because Python may run their handlers; return nonzero if one has raised.
define internal i32 @fiber_look(ptr %fiber) nounwind {
  call void @leave_fiber(ptr %fiber, i64 2)
  %status.at = getelementptr %fiber, ptr %fiber, i64 0, i32 11
  %status = load i32, ptr %status.at
  ret i32 %status
}

; Prepare a fiber to run its program from the start.
define internal void @begin_fiber(ptr %gang, ptr %fiber) nounwind {
  %context = getelementptr %fiber, ptr %fiber, i64 0, i32 13
  %get.at = getelementptr %gang, ptr %gang, i64 0, i32 6
  %get = load ptr, ptr %get.at
  %g = call i32 %get(ptr %context)
  %stack.at = getelementptr %fiber, ptr %fiber, i64 0, i32 3
  %stack = load ptr, ptr %stack.at
  %bytes.at = getelementptr %fiber, ptr %fiber, i64 0, i32 4
  %bytes = load i64, ptr %bytes.at
  %link.to = getelementptr ptr, ptr %context, i64 1
  store ptr null, ptr %link.to
  %stack.to = getelementptr ptr, ptr %context, i64 2
  store ptr %stack, ptr %stack.to
  %bytes.to = getelementptr i64, ptr %context, i64 4
  store i64 %bytes, ptr %bytes.to
  %address = ptrtoint ptr %fiber to i64
  %low = trunc i64 %address to i32
  %upper = lshr i64 %address, 32
  %high = trunc i64 %upper to i32
  %make.at = getelementptr %gang, ptr %gang, i64 0, i32 7
  %make = load ptr, ptr %make.at
  call void (ptr, ptr, i32, ...) %make(ptr %context, ptr @fiber_main, i32 2, i32 %low, i32 %high)
  ret void
}

; Return the nanoseconds for which the thread has computed.
define internal i64 @thread_nanoseconds() nounwind {
  %time = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 3, ptr %time)
  %seconds = load i64, ptr %time
  %fraction.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %fraction = load i64, ptr %fraction.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %fraction
  ret i64 %now
}

; Run all devices of a gang that the thread has taken. The addresses of their inputs and outputs follow one another.
; Return 0; or 1: a program ended early, 2: all wait, 3: the operands of a collective differ, 4: no memory for arenas.
define i32 @hloom_gang_run(ptr %gang, ptr %sources, i64 %inputs, ptr %targets, i64 %outputs) nounwind {
entry:
  %count.at = getelementptr %gang, ptr %gang, i64 0, i32 2
  %count = load i64, ptr %count.at
  %stacks.at = getelementptr %gang, ptr %gang, i64 0, i32 3
  %stacks = load i64, ptr %stacks.at
  %meets = icmp ne i64 %stacks, 0
  %memory.at = getelementptr %gang, ptr %gang, i64 0, i32 4
  %memory = load ptr, ptr %memory.at
  %arena.bytes.at = getelementptr %gang, ptr %gang, i64 0, i32 5
  %arena.bytes = load i64, ptr %arena.bytes.at
  %all.bytes = mul i64 %arena.bytes, %count
  %needs = icmp ne i64 %all.bytes, 0
  br i1 %needs, label %lend, label %prepare

lend:
  %lent = call ptr @hloom_take(ptr %memory, i64 %all.bytes)
  %lacks = icmp eq ptr %lent, null
  br i1 %lacks, label %no.memory, label %prepare

no.memory:
  ret i32 4

prepare:
  %arenas = phi ptr [ null, %entry ], [ %lent, %lend ]
  br label %device

device:
  %n = phi i64 [ 0, %prepare ], [ %n.next, %prepared ]
  %all = icmp eq i64 %n, %count
  br i1 %all, label %start, label %place

place:
  %fiber = getelementptr %gang, ptr %gang, i64 0, i32 13, i64 %n
  %first.input = mul i64 %n, %inputs
  %its.sources = getelementptr ptr, ptr %sources, i64 %first.input
  %sources.at = getelementptr %fiber, ptr %fiber, i64 0, i32 5
  store ptr %its.sources, ptr %sources.at
  %first.output = mul i64 %n, %outputs
  %its.targets = getelementptr ptr, ptr %targets, i64 %first.output
  %targets.at = getelementptr %fiber, ptr %fiber, i64 0, i32 6
  store ptr %its.targets, ptr %targets.at
  %offset = mul i64 %n, %arena.bytes
  %arena = getelementptr i8, ptr %arenas, i64 %offset
  %arena.at = getelementptr %fiber, ptr %fiber, i64 0, i32 7
  store ptr %arena, ptr %arena.at
  %state.at = getelementptr %fiber, ptr %fiber, i64 0, i32 8
  store i64 0, ptr %state.at
  %status.at = getelementptr %fiber, ptr %fiber, i64 0, i32 11
  store i32 0, ptr %status.at
  br i1 %meets, label %make, label %prepared

make:
  call void @begin_fiber(ptr %gang, ptr %fiber)
  br label %prepared

prepared:
  %n.next = add i64 %n, 1
  br label %device

start:
  br i1 %meets, label %turns, label %apart

turns:
  %turns.status = call i32 @take_turns(ptr %gang, i64 %count)
  br label %end

apart:
  %parts.at = getelementptr %gang, ptr %gang, i64 0, i32 10
  %parts = load i64, ptr %parts.at
  %by.pool = icmp ne i64 %parts, 0
  br i1 %by.pool, label %pool, label %one.by.one

pool:
  %first.context.at = getelementptr %gang, ptr %gang, i64 0, i32 13, i64 0, i32 2
  %first.context = load ptr, ptr %first.context.at
  %polled = call i32 @hloom_parallel(ptr %first.context, ptr @run_devices, ptr %gang, i64 %count, i64 1)
  br label %ask

ask:
  %asked = phi i64 [ 0, %pool ], [ %asked.next, %add ]
  %pool.status = phi i32 [ %polled, %pool ], [ %pool.status.next, %add ]
  %asked.all = icmp eq i64 %asked, %count
  br i1 %asked.all, label %end, label %add

add:
  %its.status.at = getelementptr %gang, ptr %gang, i64 0, i32 13, i64 %asked, i32 11
  %its.status = load i32, ptr %its.status.at
  %pool.status.next = or i32 %pool.status, %its.status
  %asked.next = add i64 %asked, 1
  br label %ask

one.by.one:
  %one = phi i64 [ 0, %apart ], [ %one.next, %run.one ]
  %ran.all = icmp eq i64 %one, %count
  br i1 %ran.all, label %end, label %run.one

run.one:
  %its = getelementptr %gang, ptr %gang, i64 0, i32 13, i64 %one
  %one.status = call i32 @run_device(ptr %its)
  %one.next = add i64 %one, 1
  %fails = icmp ne i32 %one.status, 0
  br i1 %fails, label %end, label %one.by.one

end:
  %status = phi i32 [ %turns.status, %turns ], [ %pool.status, %ask ], [ 0, %one.by.one ], [ 1, %run.one ]
  br i1 %needs, label %give, label %done

give:
  call void @hloom_give(ptr %memory, ptr %arenas)
  br label %done

done:
  ret i32 %status
}

; Run some devices, as a task of the pool.
define internal void @run_devices(ptr %gang, i64 %begin, i64 %end) nounwind {
entry:
  br label %device

device:
  %n = phi i64 [ %begin, %entry ], [ %n.next, %run ]
  %all = icmp eq i64 %n, %end
  br i1 %all, label %done, label %run

run:
  %fiber = getelementptr %gang, ptr %gang, i64 0, i32 13, i64 %n
  %status = call i32 @run_device(ptr %fiber)
  %status.at = getelementptr %fiber, ptr %fiber, i64 0, i32 11
  store i32 %status, ptr %status.at
  %n.next = add i64 %n, 1
  br label %device

done:
  ret void
}

; Take turns, and note whether sections were long: more than 100 us in the mean, in which the thread computed.
define internal i32 @take_turns(ptr %gang, i64 %count) nounwind {
  %begin = call i64 @thread_nanoseconds()
  %resumed.at = getelementptr %gang, ptr %gang, i64 0, i32 9
  store i64 0, ptr %resumed.at
  %status = call i32 @resume_all(ptr %gang, i64 %count)
  %now = call i64 @thread_nanoseconds()
  %elapsed = sub i64 %now, %begin
  %resumed = load i64, ptr %resumed.at
  %bound = mul i64 %resumed, 100000
  %long = icmp ugt i64 %elapsed, %bound
  %long.at = getelementptr %gang, ptr %gang, i64 0, i32 1
  %times = load i32, ptr %long.at
  %more = add i32 %times, 1
  %long.times = select i1 %long, i32 %more, i32 0
  store i32 %long.times, ptr %long.at
  ret i32 %status
}

; Resume the fibers in turns until all have finished; return the status of the run.
define internal i32 @resume_all(ptr %gang, i64 %count) nounwind {
entry:
  %thread = getelementptr %gang, ptr %gang, i64 0, i32 12
  %swap.at = getelementptr %gang, ptr %gang, i64 0, i32 8
  %swap = load ptr, ptr %swap.at
  %resumed.at = getelementptr %gang, ptr %gang, i64 0, i32 9
  br label %turn

turn:
  br label %next

next:
  %n = phi i64 [ 0, %turn ], [ %n.next, %passed ]
  %moved = phi i1 [ false, %turn ], [ %moved.next, %passed ]
  %left = phi i1 [ false, %turn ], [ %left.next, %passed ]
  %all = icmp eq i64 %n, %count
  br i1 %all, label %turned, label %look

look:
  %fiber = getelementptr %gang, ptr %gang, i64 0, i32 13, i64 %n
  %own = getelementptr %fiber, ptr %fiber, i64 0, i32 13
  %state.at = getelementptr %fiber, ptr %fiber, i64 0, i32 8
  %status.at = getelementptr %fiber, ptr %fiber, i64 0, i32 11
  %before = load i64, ptr %state.at
  switch i64 %before, label %resume [ i64 1, label %compare
                                      i64 3, label %passed ]

compare:
  %word.at = getelementptr %fiber, ptr %fiber, i64 0, i32 9
  %word = load ptr, ptr %word.at
  %value.at = getelementptr %fiber, ptr %fiber, i64 0, i32 10
  %value = load i32, ptr %value.at
  %seen = load atomic i32, ptr %word monotonic, align 4
  %same = icmp eq i32 %seen, %value
  br i1 %same, label %passed, label %resume

resume:
  store i64 0, ptr %state.at
  %resumed = load i64, ptr %resumed.at
  %resumed.next = add i64 %resumed, 1
  store i64 %resumed.next, ptr %resumed.at
  %s = call i32 %swap(ptr %thread, ptr %own)
  %state = load i64, ptr %state.at
  switch i64 %state, label %differ [ i64 1, label %passed
                                     i64 2, label %signals
                                     i64 3, label %finished ]

signals:
  %raised = call i32 @look_for_signals()
  store i32 %raised, ptr %status.at
  br label %resume

finished:
  %status = load i32, ptr %status.at
  %fails = icmp ne i32 %status, 0
  br i1 %fails, label %ended, label %passed

passed:
  %moved.next = phi i1 [ %moved, %look ], [ %moved, %compare ], [ true, %resume ], [ true, %finished ]
  %left.next = phi i1 [ %left, %look ], [ true, %compare ], [ true, %resume ], [ %left, %finished ]
  %n.next = add i64 %n, 1
  br label %next

turned:
  br i1 %left, label %again, label %complete

again:
  br i1 %moved, label %turn, label %deadlock

complete:
  ret i32 0

ended:
  ret i32 1

deadlock:
  ret i32 2

differ:
  ret i32 3
}

; Run a gang without the GIL, which the caller holds.
define i32 @hloom_gang_execute(ptr %gang, ptr %sources, i64 %inputs, ptr %targets, i64 %outputs) nounwind {
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 @hloom_gang_run(ptr %gang, ptr %sources, i64 %inputs, ptr %targets, i64 %outputs)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i32 %status
}
