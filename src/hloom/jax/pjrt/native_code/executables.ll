; Destruction of executables by any thread, without waiting for the interpreter.
;
; The last reference may be that of a thread of JAX's, at the time when the interpreter ends. The interpreter ends
; threads that wait for it, and the C++ code around them then ends the process by std::terminate. So executables are
; listed here, and Python frees them in the main thread.
;
; It is not traced there: CPython 3.11 enters no function of Python in a pending call that a debugger or coverage traces
; while another call is pending, but tries for ever.

@destroyed = internal global ptr null                               ; the first of a list
@sweeper = internal global ptr null                                 ; the function of Python that frees them
@sweeper.lock = internal global [6 x i64] zeroinitializer, align 8  ; pthread_mutex_t

declare i32 @Py_AddPendingCall(ptr, ptr)
declare ptr @PyThreadState_Get()
declare void @PyThreadState_EnterTracing(ptr)
declare void @PyThreadState_LeaveTracing(ptr)

; Set the function that the main thread calls soon after an executable was destroyed; null: none.
define void @pjrt_set_sweeper(ptr %function) nounwind {
  %l = call i32 @pthread_mutex_lock(ptr @sweeper.lock)
  store ptr %function, ptr @sweeper
  %u = call i32 @pthread_mutex_unlock(ptr @sweeper.lock)
  ret void
}

; Return the list of destroyed executables, which is empty afterwards.
define ptr @pjrt_take_destroyed() nounwind {
  %first = atomicrmw xchg ptr @destroyed, ptr null acquire
  ret ptr %first
}

; It is the loaded executable, which is destroyed on its own.
define ptr @PJRT_Executable_Destroy(ptr %args) nounwind {
  ret ptr null
}

define ptr @PJRT_LoadedExecutable_Destroy(ptr %args) nounwind {
entry:
  %executable.at = getelementptr ptr, ptr %args, i64 2
  %executable = load ptr, ptr %executable.at
  %destroyed.at = getelementptr %executable, ptr %executable, i64 0, i32 15
  %before = atomicrmw xchg ptr %destroyed.at, i64 1 monotonic
  %again = icmp ne i64 %before, 0
  br i1 %again, label %done, label %begin

begin:
  %next.at = getelementptr %executable, ptr %executable, i64 0, i32 14
  br label %list

list:
  %first = load atomic ptr, ptr @destroyed monotonic, align 8
  store ptr %first, ptr %next.at
  %swap = cmpxchg weak ptr @destroyed, ptr %first, ptr %executable release monotonic
  %listed = extractvalue { ptr, i1 } %swap, 1
  br i1 %listed, label %call, label %list

call:
  %l = call i32 @pthread_mutex_lock(ptr @sweeper.lock)
  %function = load ptr, ptr @sweeper
  %none = icmp eq ptr %function, null
  br i1 %none, label %unlock, label %add

add:
  ; If too many calls are pending, a later one or the next compilation frees this executable too.
  %added = call i32 @Py_AddPendingCall(ptr @sweep_untraced, ptr %function)
  br label %unlock

unlock:
  %u = call i32 @pthread_mutex_unlock(ptr @sweeper.lock)
  br label %done

done:
  ret ptr null
}

; Call the function of Python in the main thread, which holds the interpreter's lock.
define internal i32 @sweep_untraced(ptr %function) {
  %thread = call ptr @PyThreadState_Get()
  call void @PyThreadState_EnterTracing(ptr %thread)
  %status = call i32 %function(ptr null)
  call void @PyThreadState_LeaveTracing(ptr %thread)
  ret i32 %status
}
