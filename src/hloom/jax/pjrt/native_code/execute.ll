; Execution of programs that call nothing but Python functions of their own: at once in the caller's thread if they are short and their arguments
; are there, else by the worker of the first device, a thread with a queue. The programs of several devices run as a gang
; (`gang.ll` of the run time); addresses, storages and events of its devices follow one another. Python answers everything
; else.

%executable = type {
  ptr, ptr, i64,  ;  0 program (null: Python runs it), context, bytes of the arena
  i64, i64,       ;  3 replicas, partitions
  i64, i64,       ;  5 numbers of inputs and outputs
  ptr, ptr,       ;  7 inputs, outputs
  ptr, i64, ptr,  ;  9 devices, number of donated inputs, their indices
  i64, i64,       ; 12 whether a worker runs it, runs that are queued
  ptr, i64,       ; 14 next in the list of destroyed executables, whether it is destroyed
  ptr, i64        ; 16 gang (null: one device), number of devices
}
%input = type { i64, i64, ptr }         ; bytes, type, layout (null: row-major)
%output = type { i64, i64, i64, ptr, i64, ptr, i64 }
; bytes, type, rank, dimensions, number of the memory on its device, layout, number of the input whose memory it may take
; if that is donated (-1: none)

%worker = type { [6 x i64], [6 x i64], ptr, ptr, i64, i64 }
; mutex, condition, first task, last task, whether its thread runs, unfinished tasks

%task = type { ptr, ptr, ptr }  ; next, executable, event; then by words: addresses of inputs, addresses of outputs,
; storages of inputs, storages of outputs, events of inputs

@python.execute = internal global ptr null
@python.run.error = internal global ptr null
@tracing = internal global i64 0 ; whether a profiler records the programs
@python.kept.error = internal global ptr null
@stopped.message = internal constant [33 x i8] c"the program was ended by a signal"

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare void @PyErr_SetInterrupt()
declare i1 @hloom_gang_parts(ptr)
declare i32 @hloom_gang_take(ptr)
declare void @hloom_gang_wait(ptr)
declare void @hloom_gang_leave(ptr)
declare i32 @hloom_gang_run(ptr, ptr, i64, ptr, i64)

; Set the functions of Python: one runs what native code does not, one returns the error of a gang for its executable
; and status, one that of a callback in this thread, or null.
define void @pjrt_set_execute(ptr %execute, ptr %run_error, ptr %kept_error) nounwind {
  store ptr %execute, ptr @python.execute
  store ptr %run_error, ptr @python.run.error
  store ptr %kept_error, ptr @python.kept.error
  ret void
}

; Let Python run everything, which records it, or not.
define void @pjrt_set_tracing(i64 %on) nounwind {
  store atomic i64 %on, ptr @tracing monotonic, align 8
  ret void
}

define ptr @PJRT_Executable_NumReplicas(ptr %args) nounwind {
  %executable.at = getelementptr ptr, ptr %args, i64 2
  %executable = load ptr, ptr %executable.at
  %from = getelementptr %executable, ptr %executable, i64 0, i32 3
  %value = load i64, ptr %from
  %out = getelementptr i64, ptr %args, i64 3
  store i64 %value, ptr %out
  ret ptr null
}

define ptr @PJRT_Executable_NumPartitions(ptr %args) nounwind {
  %executable.at = getelementptr ptr, ptr %args, i64 2
  %executable = load ptr, ptr %executable.at
  %from = getelementptr %executable, ptr %executable, i64 0, i32 4
  %value = load i64, ptr %from
  %out = getelementptr i64, ptr %args, i64 3
  store i64 %value, ptr %out
  ret ptr null
}

define ptr @PJRT_Executable_NumOutputs(ptr %args) nounwind {
  %executable.at = getelementptr ptr, ptr %args, i64 2
  %executable = load ptr, ptr %executable.at
  %from = getelementptr %executable, ptr %executable, i64 0, i32 6
  %value = load i64, ptr %from
  %out = getelementptr i64, ptr %args, i64 3
  store i64 %value, ptr %out
  ret ptr null
}

; Run a program, whose gang the thread has taken; return its error. The addresses of inputs follow one another at
; %sources, of outputs at %targets.
define internal ptr @run(ptr %executable, ptr %sources, ptr %targets) nounwind {
entry:
  %gang.at = getelementptr %executable, ptr %executable, i64 0, i32 16
  %gang = load ptr, ptr %gang.at
  %single = icmp eq ptr %gang, null
  br i1 %single, label %alone, label %together

together:
  %inputs.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %inputs = load i64, ptr %inputs.at
  %outputs.at = getelementptr %executable, ptr %executable, i64 0, i32 6
  %outputs = load i64, ptr %outputs.at
  %gang.status = call i32 @hloom_gang_run(ptr %gang, ptr %sources, i64 %inputs, ptr %targets, i64 %outputs)
  switch i32 %gang.status, label %gang.error [ i32 0, label %done
                                               i32 1, label %ended ]

gang.error:
  %function = load ptr, ptr @python.run.error
  %error.gang = call ptr %function(ptr %executable, i32 %gang.status)
  ret ptr %error.gang

alone:
  %program = load ptr, ptr %executable
  %context.at = getelementptr %executable, ptr %executable, i64 0, i32 1
  %context = load ptr, ptr %context.at
  %bytes.at = getelementptr %executable, ptr %executable, i64 0, i32 2
  %bytes = load i64, ptr %bytes.at
  %needs = icmp ne i64 %bytes, 0
  br i1 %needs, label %lend, label %call

lend:
  %lent = call ptr @pjrt_take(i64 %bytes)
  %lacks = icmp eq ptr %lent, null
  br i1 %lacks, label %no.memory, label %call

call:
  %arena = phi ptr [ null, %alone ], [ %lent, %lend ]
  %status = call i32 %program(ptr %sources, ptr %targets, ptr %arena, ptr %context)
  br i1 %needs, label %return, label %see

return:
  call void @pjrt_give(ptr %arena)
  br label %see

see:
  %complete = icmp eq i32 %status, 0
  br i1 %complete, label %done, label %ended

done:
  ret ptr null

; A function that the program called raised an exception, which Python has kept. Or the handler of a signal raised one in
; this thread, which belongs to no Python frame here: have the signal handled again where Python runs next. Or the program
; was stopped.
ended:
  %state = call i32 @PyGILState_Ensure()
  %raised = call ptr @PyErr_Occurred()
  %any = icmp ne ptr %raised, null
  br i1 %any, label %clear, label %stopped

clear:
  call void @PyErr_Clear()
  %take = load ptr, ptr @python.kept.error
  %kept = call ptr %take()
  %by.callback = icmp ne ptr %kept, null
  br i1 %by.callback, label %failed, label %again

failed:
  call void @PyGILState_Release(i32 %state)
  ret ptr %kept

again:
  call void @PyErr_SetInterrupt()
  br label %stopped

stopped:
  call void @PyGILState_Release(i32 %state)
  %error = call ptr @pjrt_error(i64 1, ptr @stopped.message, i64 33)
  ret ptr %error

no.memory:
  %error.memory = call ptr @memory_error(ptr %executable, i32 -1)
  ret ptr %error.memory
}

; Return the error of memory that is not there: -1 for the temporaries, -2 for the results.
define internal ptr @memory_error(ptr %executable, i32 %what) nounwind {
  %function = load ptr, ptr @python.run.error
  %error = call ptr %function(ptr %executable, i32 %what)
  ret ptr %error
}

; -- workers

define internal ptr @work(ptr %worker) nounwind {
entry:
  %condition = getelementptr %worker, ptr %worker, i64 0, i32 1
  %first.at = getelementptr %worker, ptr %worker, i64 0, i32 2
  %unfinished.at = getelementptr %worker, ptr %worker, i64 0, i32 5
  br label %next

next:
  %l = call i32 @pthread_mutex_lock(ptr %worker)
  br label %look

look:
  %task = load ptr, ptr %first.at
  %empty = icmp eq ptr %task, null
  br i1 %empty, label %wait, label %pop

wait:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %worker)
  br label %look

pop:
  %following = load ptr, ptr %task
  store ptr %following, ptr %first.at
  %u = call i32 @pthread_mutex_unlock(ptr %worker)
  call void @execute_task(ptr %task)
  %l2 = call i32 @pthread_mutex_lock(ptr %worker)
  %count = load i64, ptr %unfinished.at
  %less = sub i64 %count, 1
  store i64 %less, ptr %unfinished.at
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %u2 = call i32 @pthread_mutex_unlock(ptr %worker)
  br label %next
}

; Wait until a worker has finished its tasks.
define void @pjrt_drain(ptr %worker) nounwind {
entry:
  %condition = getelementptr %worker, ptr %worker, i64 0, i32 1
  %unfinished.at = getelementptr %worker, ptr %worker, i64 0, i32 5
  %l = call i32 @pthread_mutex_lock(ptr %worker)
  br label %look

look:
  %count = load i64, ptr %unfinished.at
  %idle = icmp eq i64 %count, 0
  br i1 %idle, label %done, label %wait

wait:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %worker)
  br label %look

done:
  %u = call i32 @pthread_mutex_unlock(ptr %worker)
  ret void
}

; Queue a task; wait while the worker has as many as it may have, because each holds memory for its results.
define internal void @enqueue(ptr %worker, ptr %task) nounwind {
entry:
  %thread = alloca i64
  %condition = getelementptr %worker, ptr %worker, i64 0, i32 1
  %first.at = getelementptr %worker, ptr %worker, i64 0, i32 2
  %last.at = getelementptr %worker, ptr %worker, i64 0, i32 3
  %runs.at = getelementptr %worker, ptr %worker, i64 0, i32 4
  %unfinished.at = getelementptr %worker, ptr %worker, i64 0, i32 5
  store ptr null, ptr %task
  %l = call i32 @pthread_mutex_lock(ptr %worker)
  br label %look

look:
  %count = load i64, ptr %unfinished.at
  %full = icmp uge i64 %count, 32
  br i1 %full, label %wait, label %append

wait:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %worker)
  br label %look

append:
  %first = load ptr, ptr %first.at
  %empty = icmp eq ptr %first, null
  %last = load ptr, ptr %last.at
  %place = select i1 %empty, ptr %first.at, ptr %last ; a task begins with the next one
  store ptr %task, ptr %place
  store ptr %task, ptr %last.at
  %more = add i64 %count, 1
  store i64 %more, ptr %unfinished.at
  %runs = load i64, ptr %runs.at
  %started = icmp ne i64 %runs, 0
  br i1 %started, label %signal, label %start

start:
  store i64 1, ptr %runs.at
  %c = call i32 @pthread_create(ptr %thread, ptr null, ptr @work, ptr %worker)
  %id = load i64, ptr %thread
  %d = call i32 @pthread_detach(i64 %id)
  br label %signal

signal:
  %s = call i32 @pthread_cond_broadcast(ptr %condition)
  %u = call i32 @pthread_mutex_unlock(ptr %worker)
  ret void
}

; Run a task: wait for the events of its inputs, run the program, complete its event, drop what it holds.
define internal void @execute_task(ptr %task) nounwind {
entry:
  %executable.at = getelementptr %task, ptr %task, i64 0, i32 1
  %executable = load ptr, ptr %executable.at
  %event.at = getelementptr %task, ptr %task, i64 0, i32 2
  %event = load ptr, ptr %event.at
  %inputs = call i64 @all_inputs(ptr %executable)
  %outputs = call i64 @all_outputs(ptr %executable)
  %gang.at = getelementptr %executable, ptr %executable, i64 0, i32 16
  %gang = load ptr, ptr %gang.at
  %single = icmp eq ptr %gang, null
  %sources = getelementptr %task, ptr %task, i64 1
  %targets = getelementptr ptr, ptr %sources, i64 %inputs
  %storages = getelementptr ptr, ptr %targets, i64 %outputs
  %held = add i64 %inputs, %outputs
  %events = getelementptr ptr, ptr %storages, i64 %held
  br label %input

input:
  %i = phi i64 [ 0, %entry ], [ %i.next, %await ]
  %all = icmp eq i64 %i, %inputs
  br i1 %all, label %run, label %await

await:
  %input.event.at = getelementptr ptr, ptr %events, i64 %i
  %input.event = load ptr, ptr %input.event.at
  %failure = call ptr @pjrt_await(ptr %input.event)
  %failed = icmp ne ptr %failure, null
  %i.next = add i64 %i, 1
  br i1 %failed, label %pass.on, label %input

pass.on:
  %copy = call ptr @copy_of_error(ptr %failure)
  br label %complete

run:
  br i1 %single, label %run.alone, label %run.gang

run.alone:
  %own = call ptr @run(ptr %executable, ptr %sources, ptr %targets)
  br label %complete

run.gang:
  call void @hloom_gang_wait(ptr %gang)
  %common = call ptr @run(ptr %executable, ptr %sources, ptr %targets)
  call void @hloom_gang_leave(ptr %gang)
  br label %complete

complete:
  %error = phi ptr [ %copy, %pass.on ], [ %own, %run.alone ], [ %common, %run.gang ]
  br label %release

release:
  %j = phi i64 [ 0, %complete ], [ %j.next, %drop ]
  %all.dropped = icmp eq i64 %j, %held
  br i1 %all.dropped, label %event.of.input, label %drop

drop:
  %storage.at = getelementptr ptr, ptr %storages, i64 %j
  %storage = load ptr, ptr %storage.at
  call void @drop_storage(ptr %storage)
  %j.next = add i64 %j, 1
  br label %release

event.of.input:
  %k = phi i64 [ 0, %release ], [ %k.next, %drop.event ]
  %no.more = icmp eq i64 %k, %inputs
  br i1 %no.more, label %done, label %drop.event

drop.event:
  %waited.at = getelementptr ptr, ptr %events, i64 %k
  %waited = load ptr, ptr %waited.at
  call void @pjrt_drop_event(ptr %waited)
  %k.next = add i64 %k, 1
  br label %event.of.input

done:
  %queued.at = getelementptr %executable, ptr %executable, i64 0, i32 13
  %before = atomicrmw sub ptr %queued.at, i64 1 release
  call void @pjrt_complete(ptr %event, ptr %error)
  call void @pjrt_drop_event(ptr %event)
  call void @free(ptr %task)
  ret void
}

; -- execution
; Words of the arguments: 2 executable, 3 options, 4 lists of arguments, 5 devices, 6 arguments, 7 lists of results,
; 8 events, 9 device.

; Return the number of inputs of all devices.
define internal i64 @all_inputs(ptr %executable) nounwind {
  %inputs.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %inputs = load i64, ptr %inputs.at
  %devices.at = getelementptr %executable, ptr %executable, i64 0, i32 17
  %devices = load i64, ptr %devices.at
  %all = mul i64 %inputs, %devices
  ret i64 %all
}

; Return the number of outputs of all devices.
define internal i64 @all_outputs(ptr %executable) nounwind {
  %outputs.at = getelementptr %executable, ptr %executable, i64 0, i32 6
  %outputs = load i64, ptr %outputs.at
  %devices.at = getelementptr %executable, ptr %executable, i64 0, i32 17
  %devices = load i64, ptr %devices.at
  %all = mul i64 %outputs, %devices
  ret i64 %all
}

; Compare the arguments of a device with the inputs of the program: 0 they fit and are there, 1 they fit, 2 they do not.
define internal i32 @examine(ptr %executable, ptr %arguments) nounwind {
entry:
  %inputs.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %inputs = load i64, ptr %inputs.at
  %input.table.at = getelementptr %executable, ptr %executable, i64 0, i32 7
  %input.table = load ptr, ptr %input.table.at
  br label %argument

argument:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fits ]
  %late = phi i1 [ false, %entry ], [ %late.next, %fits ]
  %all = icmp eq i64 %i, %inputs
  br i1 %all, label %checked, label %check

check:
  %argument.at = getelementptr ptr, ptr %arguments, i64 %i
  %buffer = load ptr, ptr %argument.at
  %deleted.at = getelementptr %buffer, ptr %buffer, i64 0, i32 8
  %deleted = load i32, ptr %deleted.at
  %there = icmp eq i32 %deleted, 0
  %bytes.at = getelementptr %buffer, ptr %buffer, i64 0, i32 5
  %bytes = load i64, ptr %bytes.at
  %wanted.at = getelementptr %input, ptr %input.table, i64 %i
  %wanted = load i64, ptr %wanted.at
  %same.bytes = icmp eq i64 %bytes, %wanted
  %type.at = getelementptr %buffer, ptr %buffer, i64 0, i32 7
  %type.32 = load i32, ptr %type.at
  %type = zext i32 %type.32 to i64
  %wanted.type.at = getelementptr %input, ptr %input.table, i64 %i, i32 1
  %wanted.type = load i64, ptr %wanted.type.at
  %same.type = icmp eq i64 %type, %wanted.type
  %same.both = and i1 %same.bytes, %same.type
  %layout.at = getelementptr %buffer, ptr %buffer, i64 0, i32 9
  %layout = load ptr, ptr %layout.at
  %wanted.layout.at = getelementptr %input, ptr %input.table, i64 %i, i32 2
  %wanted.layout = load ptr, ptr %wanted.layout.at
  %same.layout = icmp eq ptr %layout, %wanted.layout
  %same = and i1 %same.both, %same.layout
  %right = and i1 %same, %there
  br i1 %right, label %fits, label %differ

fits:
  %event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  %its.event = load ptr, ptr %event.at
  %unready = call i1 @is_unready(ptr %its.event)
  %late.next = or i1 %late, %unready
  %i.next = add i64 %i, 1
  br label %argument

checked:
  %status = zext i1 %late to i32
  ret i32 %status

differ:
  ret i32 2
}

; Return the arguments of a device.
define internal ptr @arguments_of(ptr %args, i64 %device) nounwind {
  %lists.at = getelementptr ptr, ptr %args, i64 4
  %lists = load ptr, ptr %lists.at
  %row.at = getelementptr ptr, ptr %lists, i64 %device
  %row = load ptr, ptr %row.at
  ret ptr %row
}

define ptr @PJRT_LoadedExecutable_Execute(ptr %args) nounwind {
entry:
  %executable.at = getelementptr ptr, ptr %args, i64 2
  %executable = load ptr, ptr %executable.at
  %program = load ptr, ptr %executable
  %gang.at = getelementptr %executable, ptr %executable, i64 0, i32 16
  %gang = load ptr, ptr %gang.at
  %single = icmp eq ptr %gang, null
  %no.program = icmp eq ptr %program, null
  %traces.word = load atomic i64, ptr @tracing monotonic, align 8
  %traces = icmp ne i64 %traces.word, 0
  %lacks.program = and i1 %single, %no.program
  %by.python = or i1 %lacks.program, %traces
  %count.at = getelementptr i64, ptr %args, i64 6
  %count = load i64, ptr %count.at
  %inputs.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %inputs = load i64, ptr %inputs.at
  %other.count = icmp ne i64 %count, %inputs
  %devices.at = getelementptr i64, ptr %args, i64 5
  %devices = load i64, ptr %devices.at
  %own.devices.at = getelementptr %executable, ptr %executable, i64 0, i32 17
  %own.devices = load i64, ptr %own.devices.at
  %other.devices = icmp ne i64 %devices, %own.devices
  %device.at = getelementptr ptr, ptr %args, i64 9
  %device.given = load ptr, ptr %device.at
  %elsewhere = icmp ne ptr %device.given, null
  %several = xor i1 %single, true
  %gang.elsewhere = and i1 %several, %elsewhere
  %bad.counts = or i1 %other.count, %other.devices
  %bad.place = or i1 %gang.elsewhere, %bad.counts
  %bad = or i1 %by.python, %bad.place
  br i1 %bad, label %python, label %begin

begin:
  %long.at = getelementptr %executable, ptr %executable, i64 0, i32 12
  %long.word = load i64, ptr %long.at
  %long = icmp ne i64 %long.word, 0
  %donated.at = getelementptr %executable, ptr %executable, i64 0, i32 10
  %donated = load i64, ptr %donated.at
  %any.donated = icmp ne i64 %donated, 0
  %no.inputs = icmp eq i64 %inputs, 0
  br i1 %no.inputs, label %checked, label %row

row:
  %d = phi i64 [ 0, %begin ], [ %d.next, %next.row ]
  %late = phi i1 [ %long, %begin ], [ %late.next, %next.row ]
  %arguments = call ptr @arguments_of(ptr %args, i64 %d)
  %state = call i32 @examine(ptr %executable, ptr %arguments)
  %unfit = icmp eq i32 %state, 2
  br i1 %unfit, label %python, label %fits

fits:
  %is.late = icmp eq i32 %state, 1
  %late.next = or i1 %late, %is.late
  br i1 %any.donated, label %donating, label %next.row

donating:
  %clash = call i1 @donated_twice(ptr %executable, ptr %args, ptr %arguments)
  br i1 %clash, label %python, label %next.row

next.row:
  %d.next = add i64 %d, 1
  %more.rows = icmp ult i64 %d.next, %devices
  br i1 %more.rows, label %row, label %checked

checked:
  %queues = phi i1 [ %long, %begin ], [ %late.next, %next.row ]
  br i1 %single, label %place, label %take

take:
  br i1 %queues, label %later.gang, label %take.gang

take.gang:
  %taken = call i32 @hloom_gang_take(ptr %gang)
  %got = icmp ne i32 %taken, 0
  br i1 %got, label %now.gang, label %python

now.gang:
  %error.gang = call ptr @execute_now(ptr %executable, ptr %args, ptr null)
  call void @hloom_gang_leave(ptr %gang)
  br label %ended

later.gang:
  %parted = call i1 @hloom_gang_parts(ptr %gang)
  br i1 %parted, label %python, label %queue

place:
  br i1 %queues, label %may.queue, label %now

; A program that calls Python runs in the thread of its caller: the function may wait for programs of the worker.
may.queue:
  %context.at = getelementptr %executable, ptr %executable, i64 0, i32 1
  %context = load ptr, ptr %context.at
  %host.at = getelementptr ptr, ptr %context, i64 8
  %host = load ptr, ptr %host.at
  %calls = icmp ne ptr %host, null
  br i1 %calls, label %python, label %queue

now:
  %error = call ptr @execute_now(ptr %executable, ptr %args, ptr %device.given)
  br label %ended

queue:
  %event = call ptr @pjrt_event(i64 2)
  %error.queue = call ptr @execute_later(ptr %executable, ptr %args, ptr %device.given, ptr %event)
  br label %ended

ended:
  %outcome = phi ptr [ %error, %now ], [ %error.gang, %now.gang ], [ %error.queue, %queue ]
  %done = phi ptr [ @ready, %now ], [ @ready, %now.gang ], [ %event, %queue ]
  %succeeds = icmp eq ptr %outcome, null
  br i1 %succeeds, label %donate, label %fail

donate:
  call void @donate_all(ptr %executable, ptr %args)
  %events.at = getelementptr ptr, ptr %args, i64 8
  %events = load ptr, ptr %events.at
  %wants = icmp ne ptr %events, null
  br i1 %wants, label %give.event, label %drop.event

give.event:
  %e = phi i64 [ 0, %donate ], [ %e.next, %give.event ]
  %kept = call ptr @kept_event(ptr %done)
  %event.to = getelementptr ptr, ptr %events, i64 %e
  store ptr %kept, ptr %event.to
  %e.next = add i64 %e, 1
  %more.events = icmp ult i64 %e.next, %devices
  br i1 %more.events, label %give.event, label %drop.event

drop.event:
  call void @pjrt_drop_event(ptr %done)
  ret ptr null

fail:
  call void @pjrt_drop_event(ptr %done)
  ret ptr %outcome

python:
  %function = load ptr, ptr @python.execute
  %answer = call ptr %function(ptr %args)
  ret ptr %answer
}


; Return a device of an executable, by its number: the given one, if that is not null.
define internal ptr @device_of(ptr %executable, ptr %given, i64 %number) nounwind {
  %devices.at = getelementptr %executable, ptr %executable, i64 0, i32 9
  %devices = load ptr, ptr %devices.at
  %own.at = getelementptr ptr, ptr %devices, i64 %number
  %own = load ptr, ptr %own.at
  %none = icmp eq ptr %given, null
  %device = select i1 %none, ptr %own, ptr %given
  ret ptr %device
}

; Mark the donated arguments of all devices as deleted.
define internal void @donate_all(ptr %executable, ptr %args) nounwind {
entry:
  %donated.at = getelementptr %executable, ptr %executable, i64 0, i32 10
  %donated = load i64, ptr %donated.at
  %none = icmp eq i64 %donated, 0
  %devices.at = getelementptr %executable, ptr %executable, i64 0, i32 17
  %devices = load i64, ptr %devices.at
  br i1 %none, label %done, label %row

row:
  %d = phi i64 [ 0, %entry ], [ %d.next, %row ]
  %arguments = call ptr @arguments_of(ptr %args, i64 %d)
  call void @donate(ptr %executable, ptr %args, ptr %arguments)
  %d.next = add i64 %d, 1
  %more = icmp ult i64 %d.next, %devices
  br i1 %more, label %row, label %done

done:
  ret void
}

; Make the results of all devices and write the addresses of their data; return true if there is memory for all.
define internal i1 @make_all_results(ptr %executable, ptr %args, ptr %given, ptr %targets, ptr %event) nounwind {
entry:
  %inputs.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %inputs = load i64, ptr %inputs.at
  %no.inputs = icmp eq i64 %inputs, 0
  %outputs.at = getelementptr %executable, ptr %executable, i64 0, i32 6
  %outputs = load i64, ptr %outputs.at
  %devices.at = getelementptr %executable, ptr %executable, i64 0, i32 17
  %devices = load i64, ptr %devices.at
  br label %row

row:
  %d = phi i64 [ 0, %entry ], [ %d.next, %next ]
  br i1 %no.inputs, label %make, label %read

read:
  %row.arguments = call ptr @arguments_of(ptr %args, i64 %d)
  br label %make

make:
  %arguments = phi ptr [ null, %row ], [ %row.arguments, %read ]
  %results = call ptr @results_of(ptr %args, i64 %d)
  %device = call ptr @device_of(ptr %executable, ptr %given, i64 %d)
  %first = mul i64 %d, %outputs
  %its.targets = getelementptr ptr, ptr %targets, i64 %first
  %made = call i1 @make_results(ptr %executable, ptr %args, ptr %arguments, ptr %results, ptr %its.targets, ptr %device,
                                ptr %event)
  br i1 %made, label %next, label %undo

next:
  %d.next = add i64 %d, 1
  %more = icmp ult i64 %d.next, %devices
  br i1 %more, label %row, label %done

done:
  ret i1 true

undo:
  call void @destroy_all_results(ptr %executable, ptr %args, i64 %d)
  ret i1 false
}

; Destroy the results of the first devices.
define internal void @destroy_all_results(ptr %executable, ptr %args, i64 %devices) nounwind {
entry:
  %outputs.at = getelementptr %executable, ptr %executable, i64 0, i32 6
  %outputs = load i64, ptr %outputs.at
  br label %row

row:
  %d = phi i64 [ 0, %entry ], [ %d.next, %destroy ]
  %all = icmp eq i64 %d, %devices
  br i1 %all, label %done, label %destroy

destroy:
  %results = call ptr @results_of(ptr %args, i64 %d)
  call void @destroy_results(ptr %results, i64 %outputs)
  %d.next = add i64 %d, 1
  br label %row

done:
  ret void
}

; Run in this thread, on the given device unless it is null; return the error.
define internal ptr @execute_now(ptr %executable, ptr %args, ptr %given) nounwind {
entry:
  %row.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %row.inputs = load i64, ptr %row.at
  %devices.at = getelementptr %executable, ptr %executable, i64 0, i32 17
  %devices = load i64, ptr %devices.at
  %inputs = call i64 @all_inputs(ptr %executable)
  %outputs = call i64 @all_outputs(ptr %executable)
  %sources = alloca ptr, i64 %inputs
  %targets = alloca ptr, i64 %outputs
  %made = call i1 @make_all_results(ptr %executable, ptr %args, ptr %given, ptr %targets, ptr null)
  %no.inputs = icmp eq i64 %inputs, 0
  br i1 %made, label %begin, label %no.memory

begin:
  br i1 %no.inputs, label %run, label %row

row:
  %d = phi i64 [ 0, %begin ], [ %d.next, %next.row ]
  %arguments = call ptr @arguments_of(ptr %args, i64 %d)
  %first = mul i64 %d, %row.inputs
  %row.sources = getelementptr ptr, ptr %sources, i64 %first
  br label %take

take:
  %i = phi i64 [ 0, %row ], [ %i.next, %take ]
  %argument.at = getelementptr ptr, ptr %arguments, i64 %i
  %buffer = load ptr, ptr %argument.at
  %data.at = getelementptr %buffer, ptr %buffer, i64 0, i32 1
  %data = load ptr, ptr %data.at
  %source.at = getelementptr ptr, ptr %row.sources, i64 %i
  store ptr %data, ptr %source.at
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %row.inputs
  br i1 %more, label %take, label %next.row

next.row:
  %d.next = add i64 %d, 1
  %more.rows = icmp ult i64 %d.next, %devices
  br i1 %more.rows, label %row, label %run

run:
  %error = call ptr @run(ptr %executable, ptr %sources, ptr %targets)
  %succeeds = icmp eq ptr %error, null
  br i1 %succeeds, label %done, label %undo

done:
  ret ptr null

undo: ; the program may have begun to write over donated arguments
  call void @destroy_all_results(ptr %executable, ptr %args, i64 %devices)
  call void @donate_all(ptr %executable, ptr %args)
  ret ptr %error

no.memory:
  %error.memory = call ptr @memory_error(ptr %executable, i32 -2)
  ret ptr %error.memory
}

; Queue a task that completes the event, of which it takes one reference.
define internal ptr @execute_later(ptr %executable, ptr %args, ptr %given, ptr %event) nounwind {
entry:
  %row.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %row.inputs = load i64, ptr %row.at
  %row.outputs.at = getelementptr %executable, ptr %executable, i64 0, i32 6
  %row.outputs = load i64, ptr %row.outputs.at
  %devices.at = getelementptr %executable, ptr %executable, i64 0, i32 17
  %devices = load i64, ptr %devices.at
  %inputs = call i64 @all_inputs(ptr %executable)
  %outputs = call i64 @all_outputs(ptr %executable)
  %held = add i64 %inputs, %outputs
  %twice = shl i64 %held, 1
  %words = add i64 %twice, %inputs
  %words.bytes = shl i64 %words, 3
  %bytes = add i64 %words.bytes, 24
  %task = call ptr @malloc(i64 %bytes)
  %sources = getelementptr %task, ptr %task, i64 1
  %targets = getelementptr ptr, ptr %sources, i64 %inputs
  %storages = getelementptr ptr, ptr %targets, i64 %outputs
  %output.storages = getelementptr ptr, ptr %storages, i64 %inputs
  %events = getelementptr ptr, ptr %storages, i64 %held
  %executable.at = getelementptr %task, ptr %task, i64 0, i32 1
  store ptr %executable, ptr %executable.at
  %event.at = getelementptr %task, ptr %task, i64 0, i32 2
  store ptr %event, ptr %event.at
  %made = call i1 @make_all_results(ptr %executable, ptr %args, ptr %given, ptr %targets, ptr %event)
  br i1 %made, label %row, label %no.memory

row:
  %d = phi i64 [ 0, %entry ], [ %d.next, %next.row ]
  %first.input = mul i64 %d, %row.inputs
  %row.sources = getelementptr ptr, ptr %sources, i64 %first.input
  %row.storages = getelementptr ptr, ptr %storages, i64 %first.input
  %row.events = getelementptr ptr, ptr %events, i64 %first.input
  %first.output = mul i64 %d, %row.outputs
  %row.output.storages = getelementptr ptr, ptr %output.storages, i64 %first.output
  %results = call ptr @results_of(ptr %args, i64 %d)
  br label %input

input:
  %i = phi i64 [ 0, %row ], [ %i.next, %take ]
  %all = icmp eq i64 %i, %row.inputs
  br i1 %all, label %output, label %take

take:
  %arguments = call ptr @arguments_of(ptr %args, i64 %d)
  %argument.at = getelementptr ptr, ptr %arguments, i64 %i
  %buffer = load ptr, ptr %argument.at
  %storage = load ptr, ptr %buffer
  call void @keep_storage(ptr %storage)
  %data.at = getelementptr %buffer, ptr %buffer, i64 0, i32 1
  %data = load ptr, ptr %data.at
  %source.at = getelementptr ptr, ptr %row.sources, i64 %i
  store ptr %data, ptr %source.at
  %storage.at = getelementptr ptr, ptr %row.storages, i64 %i
  store ptr %storage, ptr %storage.at
  %input.event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  %input.event = load ptr, ptr %input.event.at
  %kept = call ptr @kept_event(ptr %input.event)
  %waited.at = getelementptr ptr, ptr %row.events, i64 %i
  store ptr %kept, ptr %waited.at
  %i.next = add i64 %i, 1
  br label %input

output:
  %j = phi i64 [ 0, %input ], [ %j.next, %hold ]
  %all.out = icmp eq i64 %j, %row.outputs
  br i1 %all.out, label %next.row, label %hold

hold:
  %result.at = getelementptr ptr, ptr %results, i64 %j
  %result = load ptr, ptr %result.at
  %its.storage = load ptr, ptr %result
  call void @keep_storage(ptr %its.storage)
  %held.at = getelementptr ptr, ptr %row.output.storages, i64 %j
  store ptr %its.storage, ptr %held.at
  %j.next = add i64 %j, 1
  br label %output

next.row:
  %d.next = add i64 %d, 1
  %more.rows = icmp ult i64 %d.next, %devices
  br i1 %more.rows, label %row, label %send

send:
  %queued.at = getelementptr %executable, ptr %executable, i64 0, i32 13
  %before = atomicrmw add ptr %queued.at, i64 1 monotonic
  %device = call ptr @device_of(ptr %executable, ptr %given, i64 0)
  %worker.at = getelementptr ptr, ptr %device, i64 1
  %worker = load ptr, ptr %worker.at
  call void @enqueue(ptr %worker, ptr %task)
  ret ptr null

no.memory:
  call void @free(ptr %task)
  call void @pjrt_drop_event(ptr %event)
  %error = call ptr @memory_error(ptr %executable, i32 -2)
  ret ptr %error
}
