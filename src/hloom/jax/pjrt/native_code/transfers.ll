; Transfers between the host and buffers. Python answers for other layouts and for elements of less than a byte.

@size.message = internal constant [54 x i8] c"the destination is smaller than the buffer's elements\00"

; Copy to the host, row-major; other layouts are Python's. Waits for the buffer.
define ptr @pjrt_to_host(ptr %args) nounwind {
entry:
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %deleted = call i1 @is_deleted(ptr %buffer)
  br i1 %deleted, label %refuse, label %measure

measure:
  %bytes.at = getelementptr %buffer, ptr %buffer, i64 0, i32 5
  %bytes = load i64, ptr %bytes.at
  %target.at = getelementptr ptr, ptr %args, i64 4
  %target = load ptr, ptr %target.at
  %size.at = getelementptr i64, ptr %args, i64 5
  %asks = icmp eq ptr %target, null
  br i1 %asks, label %answer, label %check

answer:
  store i64 %bytes, ptr %size.at
  ret ptr null

check:
  %size = load i64, ptr %size.at
  %fits = icmp ule i64 %bytes, %size
  br i1 %fits, label %hold, label %refuse.size

hold:
  %storage = load ptr, ptr %buffer
  call void @keep_storage(ptr %storage)
  %event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  %event = load ptr, ptr %event.at
  %failure = call ptr @pjrt_await(ptr %event)
  %failed = icmp ne ptr %failure, null
  br i1 %failed, label %pass.on, label %copy

copy:
  %data.at = getelementptr %storage, ptr %storage, i64 0, i32 1
  %data = load ptr, ptr %data.at
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %data, i64 %bytes, i1 false)
  call void @drop_storage(ptr %storage)
  %out = getelementptr ptr, ptr %args, i64 6
  store ptr @ready, ptr %out
  ret ptr null

pass.on:
  call void @drop_storage(ptr %storage)
  %copied = call ptr @copy_of_error(ptr %failure)
  ret ptr %copied

refuse:
  %error = call ptr @refuse_deleted()
  ret ptr %error

refuse.size:
  %error.size = call ptr @pjrt_error(i64 3, ptr @size.message, i64 53)
  ret ptr %error.size
}

; Return a buffer of row-major data of the host: its copy, or the data itself if they stay unchanged (semantics 2 or
; 3) and are worth it. The event that the caller gets is complete when the host's memory is no longer read.
; Null if there is no memory.
define ptr @pjrt_from_host(ptr %data, i64 %bytes, i32 %type, i64 %rank, ptr %dims, i32 %semantics, ptr %device,
                           ptr %memory, ptr %event.out) nounwind {
entry:
  %lasting = icmp uge i32 %semantics, 2
  %large = icmp uge i64 %bytes, 2048
  %address = ptrtoint ptr %data to i64
  %low = and i64 %address, 15
  %aligned = icmp eq i64 %low, 0
  %worth = and i1 %large, %aligned
  %borrows = and i1 %lasting, %worth
  br i1 %borrows, label %borrow, label %allocate

borrow:
  %event = call ptr @pjrt_event(i64 2)
  %lent = call ptr @foreign(ptr %data, ptr @release_host, ptr %event, ptr null)
  br label %make

allocate:
  %own = call ptr @pjrt_storage(i64 %bytes)
  %none = icmp eq ptr %own, null
  br i1 %none, label %nothing, label %copy

copy:
  %target.at = getelementptr %storage, ptr %own, i64 0, i32 1
  %target = load ptr, ptr %target.at
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %data, i64 %bytes, i1 false)
  br label %make

make:
  %storage = phi ptr [ %lent, %borrow ], [ %own, %copy ]
  %done = phi ptr [ %event, %borrow ], [ @ready, %copy ]
  store ptr %done, ptr %event.out
  %buffer = call ptr @pjrt_buffer(ptr %storage, ptr %device, ptr %memory, ptr null, i64 %bytes, i32 %type, i64 %rank,
                                  ptr %dims)
  ret ptr %buffer

nothing:
  ret ptr null
}

; Return a buffer of memory of another owner, which is told by its function when it is no longer used.
define ptr @pjrt_view(ptr %data, i64 %bytes, i32 %type, i64 %rank, ptr %dims, ptr %device, ptr %memory,
                      ptr %function, ptr %argument) nounwind {
  %storage = call ptr @foreign(ptr %data, ptr @release_foreign, ptr %function, ptr %argument)
  %buffer = call ptr @pjrt_buffer(ptr %storage, ptr %device, ptr %memory, ptr null, i64 %bytes, i32 %type, i64 %rank,
                                  ptr %dims)
  ret ptr %buffer
}

; Widths of element types in bytes, by number; 0 for those whose host form is Python's (less than a byte, tokens).
@widths = internal constant [34 x i8] c"\00\01\01\02\04\08\01\02\04\08\02\04\08\02\08\10\01\01\01\01\01\00\00\00\00\00\01\01\01\00\00\00\00\00"
@python.from_host = internal global ptr null
@python.to_host = internal global ptr null

; Set the functions of Python that do what native code does not.
define void @pjrt_set_transfers(ptr %from_host, ptr %to_host) nounwind {
  store ptr %from_host, ptr @python.from_host
  store ptr %to_host, ptr @python.to_host
  ret void
}

define ptr @PJRT_Buffer_ToHostBuffer(ptr %args) nounwind {
entry:
  %layout.at = getelementptr ptr, ptr %args, i64 3
  %layout = load ptr, ptr %layout.at
  %plain = icmp eq ptr %layout, null
  br i1 %plain, label %native, label %python

native:
  %error = call ptr @pjrt_to_host(ptr %args)
  ret ptr %error

python:
  %function = load ptr, ptr @python.to_host
  %answer = call ptr %function(ptr %args)
  ret ptr %answer
}

; Words of the arguments: 3 data, 4 type, 5 dims, 6 rank, 7 strides, 8 their number, 9 semantics, 10 device, 11 memory,
; 12 layout, 13 event, 14 buffer.
define ptr @PJRT_Client_BufferFromHostBuffer(ptr %args) nounwind {
entry:
  %type.at = getelementptr i64, ptr %args, i64 4
  %type = load i32, ptr %type.at
  %known = icmp ult i32 %type, 34
  %row = select i1 %known, i32 %type, i32 0
  %width.at = getelementptr i8, ptr @widths, i32 %row
  %width.8 = load i8, ptr %width.at
  %width = zext i8 %width.8 to i64
  %odd = icmp eq i64 %width, 0
  %layout.at = getelementptr ptr, ptr %args, i64 12
  %layout = load ptr, ptr %layout.at
  %laid = icmp ne ptr %layout, null
  %not.plain = or i1 %odd, %laid
  br i1 %not.plain, label %python, label %look

look:
  %dims.at = getelementptr ptr, ptr %args, i64 5
  %dims = load ptr, ptr %dims.at
  %rank.at = getelementptr i64, ptr %args, i64 6
  %rank = load i64, ptr %rank.at
  %strides.at = getelementptr ptr, ptr %args, i64 7
  %strides = load ptr, ptr %strides.at
  %count.at = getelementptr i64, ptr %args, i64 8
  %count = load i64, ptr %count.at
  %strided = icmp ne i64 %count, 0
  br label %dimension

dimension: ; from the last to the first: row-major strides are products of extents
  %left = phi i64 [ %rank, %look ], [ %d, %next ]
  %bytes = phi i64 [ %width, %look ], [ %more, %next ]
  %all = icmp eq i64 %left, 0
  br i1 %all, label %place, label %one

one:
  %d = sub i64 %left, 1
  %extent.at = getelementptr i64, ptr %dims, i64 %d
  %extent = load i64, ptr %extent.at
  %more = mul i64 %bytes, %extent
  br i1 %strided, label %compare, label %next

compare:
  %stride.at = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %stride.at
  %same = icmp eq i64 %stride, %bytes
  %single = icmp eq i64 %extent, 1
  %fits = or i1 %same, %single
  br i1 %fits, label %next, label %python

next:
  br label %dimension

place:
  %memory.at = getelementptr ptr, ptr %args, i64 11
  %memory.given = load ptr, ptr %memory.at
  %to.memory = icmp ne ptr %memory.given, null
  br i1 %to.memory, label %of.memory, label %of.device

of.memory:
  %its.device.at = getelementptr ptr, ptr %memory.given, i64 2
  %its.device = load ptr, ptr %its.device.at
  br label %make

of.device:
  %device.at = getelementptr ptr, ptr %args, i64 10
  %device.given = load ptr, ptr %device.at
  %its.memory = load ptr, ptr %device.given
  br label %make

make:
  %device = phi ptr [ %its.device, %of.memory ], [ %device.given, %of.device ]
  %memory = phi ptr [ %memory.given, %of.memory ], [ %its.memory, %of.device ]
  %data.at = getelementptr ptr, ptr %args, i64 3
  %data = load ptr, ptr %data.at
  %semantics.at = getelementptr i64, ptr %args, i64 9
  %semantics = load i32, ptr %semantics.at
  %event.out = getelementptr ptr, ptr %args, i64 13
  %made = call ptr @pjrt_from_host(ptr %data, i64 %bytes, i32 %type, i64 %rank, ptr %dims, i32 %semantics,
                                   ptr %device, ptr %memory, ptr %event.out)
  %lacks = icmp eq ptr %made, null
  br i1 %lacks, label %python, label %done

done:
  %buffer.out = getelementptr ptr, ptr %args, i64 14
  store ptr %made, ptr %buffer.out
  ret ptr null

python:
  %function = load ptr, ptr @python.from_host
  %answer = call ptr %function(ptr %args)
  ret ptr %answer
}
