; Errors and events of PJRT. `hloom.jax.pjrt.native` is the Python side.
;
; Arguments of the interface's functions are structs whose fields all begin at a multiple of 8 bytes: words 0 and 1
; are the struct's size and its extensions, the fields follow in the order of `hloom.jax.pjrt.abi`.

%storage = type { i64, ptr, ptr, ptr, ptr, [3 x i64] }
%buffer = type { ptr, ptr, ptr, ptr, ptr, i64, i64, i32, i32, ptr, i64 }
%error = type { ptr, i64, i64 }           ; table of functions, code, bytes of the message; the message follows
%event = type { i64, i64, ptr, ptr }      ; state, references, error, callbacks
%callback = type { ptr, ptr, ptr }        ; next, function, its argument

; States of an event: 0 pending, 1 ready, 2 failed.
@ready = internal global %event { i64 1, i64 1, ptr null, ptr null }
@events.lock = internal global [6 x i64] zeroinitializer, align 8  ; pthread_mutex_t
@events.changed = internal global [6 x i64] zeroinitializer, align 8 ; pthread_cond_t

declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; -- errors

; Return an error with a copy of the message.
define ptr @pjrt_error(i64 %code, ptr %message, i64 %bytes) nounwind {
  %size = add i64 %bytes, 25
  %error = call ptr @malloc(i64 %size)
  store ptr @error.functions, ptr %error
  %code.at = getelementptr %error, ptr %error, i64 0, i32 1
  store i64 %code, ptr %code.at
  %bytes.at = getelementptr %error, ptr %error, i64 0, i32 2
  store i64 %bytes, ptr %bytes.at
  %text = getelementptr %error, ptr %error, i64 1
  call void @llvm.memcpy.p0.p0.i64(ptr %text, ptr %message, i64 %bytes, i1 false)
  %end = getelementptr i8, ptr %text, i64 %bytes
  store i8 0, ptr %end
  ret ptr %error
}

; Return a copy of an error; null for null.
define internal ptr @copy_of_error(ptr %error) nounwind {
entry:
  %none = icmp eq ptr %error, null
  br i1 %none, label %nothing, label %copy

copy:
  %code.at = getelementptr %error, ptr %error, i64 0, i32 1
  %code = load i64, ptr %code.at
  %bytes.at = getelementptr %error, ptr %error, i64 0, i32 2
  %bytes = load i64, ptr %bytes.at
  %text = getelementptr %error, ptr %error, i64 1
  %made = call ptr @pjrt_error(i64 %code, ptr %text, i64 %bytes)
  ret ptr %made

nothing:
  ret ptr null
}

define ptr @PJRT_Error_Destroy(ptr %args) nounwind {
  %error.at = getelementptr ptr, ptr %args, i64 2
  %error = load ptr, ptr %error.at
  call void @free(ptr %error)
  ret ptr null
}

define ptr @PJRT_Error_Message(ptr %args) nounwind {
  %error.at = getelementptr ptr, ptr %args, i64 2
  %error = load ptr, ptr %error.at
  %text = getelementptr %error, ptr %error, i64 1
  %message.at = getelementptr ptr, ptr %args, i64 3
  store ptr %text, ptr %message.at
  %bytes.at = getelementptr %error, ptr %error, i64 0, i32 2
  %bytes = load i64, ptr %bytes.at
  %size.at = getelementptr i64, ptr %args, i64 4
  store i64 %bytes, ptr %size.at
  ret ptr null
}

define ptr @PJRT_Error_GetCode(ptr %args) nounwind {
  %error.at = getelementptr ptr, ptr %args, i64 2
  %error = load ptr, ptr %error.at
  %from = getelementptr %error, ptr %error, i64 0, i32 1
  %code.64 = load i64, ptr %from
  %code = trunc i64 %code.64 to i32
  %code.at = getelementptr i64, ptr %args, i64 3
  store i32 %code, ptr %code.at
  ret ptr null
}

; Errors carry no payloads.
define ptr @PJRT_Error_ForEachPayload(ptr %args) nounwind {
  ret ptr null
}

; The functions by which callers of version 0.105 and later reach an error: size of the table, of an error, extension;
; destroy, message, code, payloads.
@error.functions = internal constant { i64, i64, ptr, ptr, ptr, ptr, ptr } {
  i64 56, i64 8, ptr null, ptr @free, ptr @error_message, ptr @error_code, ptr @error_payloads }

define internal void @error_message(ptr %error, ptr %message, ptr %size) nounwind {
  %text = getelementptr %error, ptr %error, i64 1
  store ptr %text, ptr %message
  %bytes.at = getelementptr %error, ptr %error, i64 0, i32 2
  %bytes = load i64, ptr %bytes.at
  store i64 %bytes, ptr %size
  ret void
}

define internal i32 @error_code(ptr %error) nounwind {
  %code.at = getelementptr %error, ptr %error, i64 0, i32 1
  %code.64 = load i64, ptr %code.at
  %code = trunc i64 %code.64 to i32
  ret i32 %code
}

define internal void @error_payloads(ptr %error, ptr %visitor, ptr %argument) nounwind {
  ret void
}

; -- events

; Return the event that is always ready.
define ptr @pjrt_ready_event() nounwind {
  ret ptr @ready
}

; Return a pending event with a number of references.
define ptr @pjrt_event(i64 %references) nounwind {
  %event = call ptr @malloc(i64 32)
  store i64 0, ptr %event
  %references.at = getelementptr %event, ptr %event, i64 0, i32 1
  store i64 %references, ptr %references.at
  %error.at = getelementptr %event, ptr %event, i64 0, i32 2
  store ptr null, ptr %error.at
  %callbacks.at = getelementptr %event, ptr %event, i64 0, i32 3
  store ptr null, ptr %callbacks.at
  ret ptr %event
}

; Take a reference of an event; null stands for one that is ready. Return the event.
define internal ptr @kept_event(ptr %event) nounwind {
entry:
  %none = icmp eq ptr %event, null
  br i1 %none, label %nothing, label %count

count:
  %references.at = getelementptr %event, ptr %event, i64 0, i32 1
  %before = atomicrmw add ptr %references.at, i64 1 monotonic
  ret ptr %event

nothing:
  ret ptr @ready
}

; Drop a reference of an event; null is ignored.
define void @pjrt_drop_event(ptr %event) nounwind {
entry:
  %none = icmp eq ptr %event, null
  %constant = icmp eq ptr %event, @ready
  %kept = or i1 %none, %constant
  br i1 %kept, label %done, label %count

count:
  %references.at = getelementptr %event, ptr %event, i64 0, i32 1
  %before = atomicrmw sub ptr %references.at, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %destroy, label %done

destroy:
  %error.at = getelementptr %event, ptr %event, i64 0, i32 2
  %error = load ptr, ptr %error.at
  call void @free(ptr %error)
  call void @free(ptr %event)
  br label %done

done:
  ret void
}

; Return true if an event is pending or failed; null stands for one that is ready.
define internal i1 @is_unready(ptr %event) nounwind {
entry:
  %none = icmp eq ptr %event, null
  br i1 %none, label %ready, label %look

look:
  %state = load atomic i64, ptr %event acquire, align 8
  %unready = icmp ne i64 %state, 1
  ret i1 %unready

ready:
  ret i1 false
}

; Complete an event, which takes the error, null for success; then run its callbacks, each with its own copy.
define void @pjrt_complete(ptr %event, ptr %error) nounwind {
entry:
  %error.at = getelementptr %event, ptr %event, i64 0, i32 2
  %callbacks.at = getelementptr %event, ptr %event, i64 0, i32 3
  %failed = icmp ne ptr %error, null
  %state = select i1 %failed, i64 2, i64 1
  %l = call i32 @pthread_mutex_lock(ptr @events.lock)
  store ptr %error, ptr %error.at
  %callbacks = load ptr, ptr %callbacks.at
  store ptr null, ptr %callbacks.at
  store atomic i64 %state, ptr %event release, align 8
  %b = call i32 @pthread_cond_broadcast(ptr @events.changed)
  %u = call i32 @pthread_mutex_unlock(ptr @events.lock)
  br label %callback

callback:
  %one = phi ptr [ %callbacks, %entry ], [ %next, %run ]
  %ended = icmp eq ptr %one, null
  br i1 %ended, label %done, label %run

run:
  %next = load ptr, ptr %one
  %function.at = getelementptr %callback, ptr %one, i64 0, i32 1
  %function = load ptr, ptr %function.at
  %argument.at = getelementptr %callback, ptr %one, i64 0, i32 2
  %argument = load ptr, ptr %argument.at
  call void @free(ptr %one)
  %copy = call ptr @copy_of_error(ptr %error)
  call void %function(ptr %copy, ptr %argument)
  br label %callback

done:
  ret void
}

; Wait until an event is complete; return its error, which stays the event's own. Null stands for a ready one.
define ptr @pjrt_await(ptr %event) nounwind {
entry:
  %unready = call i1 @is_unready(ptr %event)
  br i1 %unready, label %lock, label %ready

lock:
  %l = call i32 @pthread_mutex_lock(ptr @events.lock)
  br label %look

look:
  %state = load i64, ptr %event
  %pending = icmp eq i64 %state, 0
  br i1 %pending, label %wait, label %unlock

wait:
  %w = call i32 @pthread_cond_wait(ptr @events.changed, ptr @events.lock)
  br label %look

unlock:
  %u = call i32 @pthread_mutex_unlock(ptr @events.lock)
  %error.at = getelementptr %event, ptr %event, i64 0, i32 2
  %error = load ptr, ptr %error.at
  ret ptr %error

ready:
  ret ptr null
}

define ptr @PJRT_Event_Destroy(ptr %args) nounwind {
  %event.at = getelementptr ptr, ptr %args, i64 2
  %event = load ptr, ptr %event.at
  call void @pjrt_drop_event(ptr %event)
  ret ptr null
}

define ptr @PJRT_Event_IsReady(ptr %args) nounwind {
  %event.at = getelementptr ptr, ptr %args, i64 2
  %event = load ptr, ptr %event.at
  %state = load atomic i64, ptr %event acquire, align 8
  %complete = icmp ne i64 %state, 0
  %byte = zext i1 %complete to i8
  %is_ready.at = getelementptr i64, ptr %args, i64 3
  store i8 %byte, ptr %is_ready.at
  ret ptr null
}

define ptr @PJRT_Event_Error(ptr %args) nounwind {
  %event.at = getelementptr ptr, ptr %args, i64 2
  %event = load ptr, ptr %event.at
  %error.at = getelementptr %event, ptr %event, i64 0, i32 2
  %error = load ptr, ptr %error.at
  %copy = call ptr @copy_of_error(ptr %error)
  ret ptr %copy
}

define ptr @PJRT_Event_Await(ptr %args) nounwind {
  %event.at = getelementptr ptr, ptr %args, i64 2
  %event = load ptr, ptr %event.at
  %error = call ptr @pjrt_await(ptr %event)
  %copy = call ptr @copy_of_error(ptr %error)
  ret ptr %copy
}

define ptr @PJRT_Event_OnReady(ptr %args) nounwind {
entry:
  %event.at = getelementptr ptr, ptr %args, i64 2
  %event = load ptr, ptr %event.at
  %function.at = getelementptr ptr, ptr %args, i64 3
  %function = load ptr, ptr %function.at
  %argument.at = getelementptr ptr, ptr %args, i64 4
  %argument = load ptr, ptr %argument.at
  %state = load atomic i64, ptr %event acquire, align 8
  %pending = icmp eq i64 %state, 0
  br i1 %pending, label %lock, label %now

lock:
  %l = call i32 @pthread_mutex_lock(ptr @events.lock)
  %again = load i64, ptr %event
  %still = icmp eq i64 %again, 0
  br i1 %still, label %add, label %unlock

add:
  %callback = call ptr @malloc(i64 24)
  %callbacks.at = getelementptr %event, ptr %event, i64 0, i32 3
  %others = load ptr, ptr %callbacks.at
  store ptr %others, ptr %callback
  %its.function = getelementptr %callback, ptr %callback, i64 0, i32 1
  store ptr %function, ptr %its.function
  %its.argument = getelementptr %callback, ptr %callback, i64 0, i32 2
  store ptr %argument, ptr %its.argument
  store ptr %callback, ptr %callbacks.at
  %u = call i32 @pthread_mutex_unlock(ptr @events.lock)
  ret ptr null

unlock:
  %v = call i32 @pthread_mutex_unlock(ptr @events.lock)
  br label %now

now:
  %error.at = getelementptr %event, ptr %event, i64 0, i32 2
  %error = load ptr, ptr %error.at
  %copy = call ptr @copy_of_error(ptr %error)
  call void %function(ptr %copy, ptr %argument)
  ret ptr null
}

define ptr @PJRT_Event_Create(ptr %args) nounwind {
  %event = call ptr @pjrt_event(i64 1)
  %event.at = getelementptr ptr, ptr %args, i64 2
  store ptr %event, ptr %event.at
  ret ptr null
}

define ptr @PJRT_Event_Set(ptr %args) nounwind {
entry:
  %event.at = getelementptr ptr, ptr %args, i64 2
  %event = load ptr, ptr %event.at
  %code.at = getelementptr i64, ptr %args, i64 3
  %code.32 = load i32, ptr %code.at
  %code = zext i32 %code.32 to i64
  %succeeds = icmp eq i64 %code, 0
  br i1 %succeeds, label %complete, label %make

make:
  %message.at = getelementptr ptr, ptr %args, i64 4
  %message = load ptr, ptr %message.at
  %bytes.at = getelementptr i64, ptr %args, i64 5
  %bytes = load i64, ptr %bytes.at
  %made = call ptr @pjrt_error(i64 %code, ptr %message, i64 %bytes)
  br label %complete

complete:
  %error = phi ptr [ null, %entry ], [ %made, %make ]
  call void @pjrt_complete(ptr %event, ptr %error)
  ret ptr null
}

; What functions do that are answered by Python once the interpreter has ended: nothing, successfully.
define ptr @pjrt_nothing(ptr %args) nounwind {
  ret ptr null
}

@gone = internal constant [32 x i8] c"the Python interpreter is ending"

; The same for functions that have something to return: fail.
define ptr @pjrt_gone(ptr %args) nounwind {
  %error = call ptr @pjrt_error(i64 9, ptr @gone, i64 32)
  ret ptr %error
}

declare void @unlock_pool()

; After a fork: no other thread holds a lock.
define void @pjrt_unlock_all() nounwind {
  call void @unlock_pool()
  call void @llvm.memset.p0.i64(ptr @events.lock, i8 0, i64 48, i1 false)
  call void @llvm.memset.p0.i64(ptr @events.changed, i8 0, i64 48, i1 false)
  call void @llvm.memset.p0.i64(ptr @sweeper.lock, i8 0, i64 48, i1 false)
  ret void
}
