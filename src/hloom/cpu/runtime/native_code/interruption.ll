; Polls: native code asks from time to time whether it shall end early.
;
; A program ends early if its stop word is set, which another thread does, or if the handler of a signal raised an
; exception. Python runs such handlers in the main thread only, and only when asked to; the exception stays
; set in the thread's state until the caller of the program finds it.

; pool, table, participants, replica, partition, stop, poll, fiber, host
%context = type { ptr, ptr, ptr, i64, i64, ptr, ptr, ptr, ptr }

@poll_nanoseconds = internal constant i64 100000000 ; between two looks for signals, each of which takes the GIL

declare i32 @PyGILState_Check()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare ptr @PyErr_Occurred()

; Return nonzero if the program shall end. The word at `last` is the time of the last look, 0 before the first.
; The address of the context is an integer, so that LLVM takes no array of the program for memory that is read here.
define i32 @hloom_poll(i64 %address, ptr %last) nounwind {
entry:
  %no.context = icmp eq i64 %address, 0
  br i1 %no.context, label %go.on, label %look

look:
  %context = inttoptr i64 %address to ptr
  %stop.at = getelementptr %context, ptr %context, i64 0, i32 5
  %stop = load ptr, ptr %stop.at
  %no.stop = icmp eq ptr %stop, null
  br i1 %no.stop, label %measure, label %read

read:
  %word = load atomic i64, ptr %stop monotonic, align 8
  %stops = icmp ne i64 %word, 0
  br i1 %stops, label %end, label %measure

measure:
  %now = call i64 @hloom_clock()
  %before = load i64, ptr %last
  %first = icmp eq i64 %before, 0
  br i1 %first, label %note, label %compare

note:
  store i64 %now, ptr %last
  ret i32 0

compare:
  %elapsed = sub i64 %now, %before
  %least = load i64, ptr @poll_nanoseconds
  %soon = icmp slt i64 %elapsed, %least
  br i1 %soon, label %go.on, label %ask

ask:
  store i64 %now, ptr %last
  %fiber.at = getelementptr %context, ptr %context, i64 0, i32 7
  %fiber = load ptr, ptr %fiber.at
  %on.thread = icmp eq ptr %fiber, null
  br i1 %on.thread, label %here, label %outside

here:
  %status = call i32 @look_for_signals()
  ret i32 %status

outside:
  %status.outside = call i32 @fiber_look(ptr %fiber)
  ret i32 %status.outside

end:
  ret i32 1

go.on:
  ret i32 0
}

; Let Python run the handlers of signals that have arrived; return nonzero if an exception is set in this thread.
define internal i32 @look_for_signals() nounwind {
entry:
  %holds = call i32 @PyGILState_Check()
  %held = icmp ne i32 %holds, 0
  br i1 %held, label %check.held, label %acquire

check.held:
  %signal.held = call i32 @PyErr_CheckSignals()
  %raised.held = icmp ne i32 %signal.held, 0
  %status.held = zext i1 %raised.held to i32
  ret i32 %status.held

acquire:
  %state = call i32 @PyGILState_Ensure()
  %error = call ptr @PyErr_Occurred()
  %has.error = icmp ne ptr %error, null
  br i1 %has.error, label %release, label %check

check:
  %signal = call i32 @PyErr_CheckSignals()
  %raised = icmp ne i32 %signal, 0
  br label %release

release:
  %ends = phi i1 [ true, %acquire ], [ %raised, %check ]
  call void @PyGILState_Release(i32 %state)
  %status = zext i1 %ends to i32
  ret i32 %status
}

; Run a program without the GIL, which the caller holds; return its status. Nonzero: it ended early.
define i32 @hloom_execute(ptr %program, ptr %sources, ptr %targets, ptr %arena, ptr %context) nounwind {
  %thread = call ptr @PyEval_SaveThread()
  %status = call i32 %program(ptr %sources, ptr %targets, ptr %arena, ptr %context)
  call void @PyEval_RestoreThread(ptr %thread)
  ret i32 %status
}
