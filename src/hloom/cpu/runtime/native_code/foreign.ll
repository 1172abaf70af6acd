; Calls of C functions that users have registered as targets of custom calls; `hloom.operations.ffi` makes the
; templates of call frames, and declares these structs.

%buffer = type { i64, ptr, i32, ptr, i64, ptr }              ; size, extension, type, data, rank, dimensions
%buffers = type { i64, ptr, i64, ptr, ptr }                  ; size, extension, count, types, addresses of buffers
%frame = type { i64, ptr, ptr, ptr, i32, %buffers, %buffers, [6 x i64], ptr } ; ..., arguments, results, attributes, future

; Call the function of a target on arrays, the operands before the results; without a function the host evaluates the
; call of this number. A template makes it a handler of XLA's typed FFI, whose error the host raises; without one it is
; called with its only result and its operands. Return 0, or 1 if an exception was raised.
define i32 @hloom_foreign(ptr %context, i64 %number, ptr %arrays, ptr %cell, ptr %template, i64 %operands,
                          i64 %results) nounwind {
entry:
  %function = load atomic ptr, ptr %cell acquire, align 8
  %known = icmp ne ptr %function, null
  br i1 %known, label %choose, label %evaluate

evaluate:
  %evaluated = call i32 @hloom_host(ptr %context, i64 %number, ptr %arrays)
  ret i32 %evaluated

choose:
  %typed = icmp ne ptr %template, null
  br i1 %typed, label %prepare, label %plain

plain:
  %result.at = getelementptr ptr, ptr %arrays, i64 %operands
  %result = load ptr, ptr %result.at
  call void %function(ptr %result, ptr %arrays)
  ret i32 0

prepare:
  %count = add i64 %operands, %results
  %frame.end = getelementptr %frame, ptr null, i64 1
  %frame.size = ptrtoint ptr %frame.end to i64
  %buffers.end = getelementptr %buffer, ptr null, i64 %count
  %buffers.size = ptrtoint ptr %buffers.end to i64
  %size = add i64 %frame.size, %buffers.size
  %frame = alloca i8, i64 %size, align 16
  %addresses = alloca ptr, i64 %count, align 16
  call void @llvm.memcpy.p0.p0.i64(ptr %frame, ptr %template, i64 %size, i1 false)
  %first = getelementptr i8, ptr %frame, i64 %frame.size
  %arguments.at = getelementptr %frame, ptr %frame, i64 0, i32 5, i32 4
  %results.at = getelementptr %frame, ptr %frame, i64 0, i32 6, i32 4
  %results.addresses = getelementptr ptr, ptr %addresses, i64 %operands
  store ptr %addresses, ptr %arguments.at
  store ptr %results.addresses, ptr %results.at
  br label %fill

fill:
  %k = phi i64 [ 0, %prepare ], [ %k.next, %set ]
  %filled = icmp eq i64 %k, %count
  br i1 %filled, label %run, label %set

set:
  %array.at = getelementptr ptr, ptr %arrays, i64 %k
  %array = load ptr, ptr %array.at
  %buffer = getelementptr %buffer, ptr %first, i64 %k
  %data.at = getelementptr %buffer, ptr %buffer, i64 0, i32 3
  store ptr %array, ptr %data.at
  %address.at = getelementptr ptr, ptr %addresses, i64 %k
  store ptr %buffer, ptr %address.at
  %k.next = add i64 %k, 1
  br label %fill

run:
  %error = call ptr %function(ptr %frame)
  %future.at = getelementptr %frame, ptr %frame, i64 0, i32 8
  %future = load ptr, ptr %future.at
  %good = icmp eq ptr %error, null
  %at.once = icmp eq ptr %future, null
  %done = and i1 %good, %at.once
  br i1 %done, label %succeeded, label %failed

succeeded:
  ret i32 0

failed:
  %answer = alloca [2 x ptr]
  %second = getelementptr ptr, ptr %answer, i64 1
  store ptr %error, ptr %answer
  store ptr %future, ptr %second
  %report = or i64 %number, 4294967296
  %raised = call i32 @hloom_host(ptr %context, i64 %report, ptr %answer)
  ret i32 %raised
}
