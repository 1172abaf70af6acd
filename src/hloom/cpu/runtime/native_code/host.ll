; Calls of Python functions from native code; `hloom.cpu.runtime.host` is the Python side. An exception stays set in the
; thread's state until the caller of the program finds it.

@host.function = internal global ptr null
@await.function = internal global ptr null

declare ptr @PyLong_FromLongLong(i64)

; Set the functions, which take two integers.
define void @hloom_set_host(ptr %host, ptr %await) nounwind {
  store ptr %host, ptr @host.function
  store ptr %await, ptr @await.function
  ret void
}

; Call a function with two integers; return 0, or 1 if it raised an exception.
define internal i32 @call_python(ptr %function, i64 %a, i64 %b) nounwind {
entry:
  %arguments = alloca [2 x ptr]
  %state = call i32 @PyGILState_Ensure()
  %first = call ptr @PyLong_FromLongLong(i64 %a)
  %second = call ptr @PyLong_FromLongLong(i64 %b)
  %no.first = icmp eq ptr %first, null
  %no.second = icmp eq ptr %second, null
  %lacks = or i1 %no.first, %no.second
  br i1 %lacks, label %ended, label %ready

ready:
  %second.at = getelementptr ptr, ptr %arguments, i64 1
  store ptr %first, ptr %arguments
  store ptr %second, ptr %second.at
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %arguments, i64 2, ptr null)
  call void @Py_DecRef(ptr %first)
  call void @Py_DecRef(ptr %second)
  %raised = icmp eq ptr %result, null
  br i1 %raised, label %ended, label %drop

drop:
  call void @Py_DecRef(ptr %result)
  br label %ended

ended:
  %failed = phi i1 [ true, %entry ], [ true, %ready ], [ false, %drop ]
  call void @PyGILState_Release(i32 %state)
  %status = zext i1 %failed to i32
  ret i32 %status
}

; Run a host call of the program with this context: its number, and the addresses of its operands and results.
define i32 @hloom_host(ptr %context, i64 %number, ptr %pointers) nounwind {
entry:
  %address = ptrtoint ptr %pointers to i64
  %no.context = icmp eq ptr %context, null
  br i1 %no.context, label %common, label %look

look:
  %own.at = getelementptr ptr, ptr %context, i64 8
  %own = load ptr, ptr %own.at
  %none = icmp eq ptr %own, null
  br i1 %none, label %common, label %call

common:
  %thread.function = load ptr, ptr @host.function
  br label %call

call:
  %function = phi ptr [ %own, %look ], [ %thread.function, %common ]
  %status = call i32 @call_python(ptr %function, i64 %number, i64 %address)
  ret i32 %status
}

; Wait for the other participants of a collective: its number, and the generation, or -1 for one that does not fit.
define internal i32 @await(i64 %number, i64 %generation) nounwind {
  %function = load ptr, ptr @await.function
  %status = call i32 @call_python(ptr %function, i64 %number, i64 %generation)
  ret i32 %status
}
