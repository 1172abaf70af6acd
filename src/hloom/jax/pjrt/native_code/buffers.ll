; Buffers of PJRT: handles of immutable arrays in counted storage.

%storage = type { i64, ptr, ptr, ptr, ptr, [3 x i64] } ; references, data, release, its argument, another one
%buffer = type { ptr, ptr, ptr, ptr, ptr, i64, i64, i32, i32, ptr, i64 }
; storage, data, device, memory, event that defines it (null: ready), bytes, rank, type, whether it is deleted, layout
; (null: row-major), number of the call that it was donated to; then the dimensions

@pool = internal global ptr null
@pool.lock = internal global i64 0
@deleted.message = internal constant [36 x i8] c"Buffer has been deleted or donated.\00"

declare ptr @hloom_take(ptr, i64)
declare void @hloom_give(ptr, ptr)
declare ptr @aligned_alloc(i64, i64)
declare i32 @sched_yield()

; -- storage

; Set the recycled memory that large results use; `hloom_take` describes it.
define void @pjrt_set_pool(ptr %pool) nounwind {
  store ptr %pool, ptr @pool
  ret void
}

define internal void @lock_pool() nounwind {
entry:
  br label %try

try:
  %before = atomicrmw xchg ptr @pool.lock, i64 1 acquire
  %free = icmp eq i64 %before, 0
  br i1 %free, label %done, label %wait

wait:
  %y = call i32 @sched_yield()
  br label %try

done:
  ret void
}

; Return recycled memory; null if there is none.
define ptr @pjrt_take(i64 %bytes) nounwind {
  %pool = load ptr, ptr @pool
  call void @lock_pool()
  %data = call ptr @hloom_take(ptr %pool, i64 %bytes)
  store atomic i64 0, ptr @pool.lock release, align 8
  ret ptr %data
}

; Return memory to be used again.
define void @pjrt_give(ptr %data) nounwind {
  %pool = load ptr, ptr @pool
  call void @lock_pool()
  call void @hloom_give(ptr %pool, ptr %data)
  store atomic i64 0, ptr @pool.lock release, align 8
  ret void
}

; After a fork: no other thread holds a lock.
define void @pjrt_unlock_all() nounwind {
  store i64 0, ptr @pool.lock
  call void @llvm.memset.p0.i64(ptr @events.lock, i8 0, i64 48, i1 false)
  call void @llvm.memset.p0.i64(ptr @events.changed, i8 0, i64 48, i1 false)
  call void @llvm.memset.p0.i64(ptr @sweeper.lock, i8 0, i64 48, i1 false)
  ret void
}

define internal void @release_inline(ptr %storage) nounwind {
  call void @free(ptr %storage)
  ret void
}

define internal void @release_pooled(ptr %storage) nounwind {
  %data.at = getelementptr %storage, ptr %storage, i64 0, i32 1
  %data = load ptr, ptr %data.at
  call void @pjrt_give(ptr %data)
  call void @free(ptr %storage)
  ret void
}

; The host's memory is no longer read: complete the event that says so.
define internal void @release_host(ptr %storage) nounwind {
  %event.at = getelementptr %storage, ptr %storage, i64 0, i32 3
  %event = load ptr, ptr %event.at
  call void @free(ptr %storage)
  call void @pjrt_complete(ptr %event, ptr null)
  call void @pjrt_drop_event(ptr %event)
  ret void
}

; Memory of another owner: call its function with the address of the data and its argument.
define internal void @release_foreign(ptr %storage) nounwind {
entry:
  %data.at = getelementptr %storage, ptr %storage, i64 0, i32 1
  %data = load ptr, ptr %data.at
  %function.at = getelementptr %storage, ptr %storage, i64 0, i32 3
  %function = load ptr, ptr %function.at
  %argument.at = getelementptr %storage, ptr %storage, i64 0, i32 4
  %argument = load ptr, ptr %argument.at
  call void @free(ptr %storage)
  %silent = icmp eq ptr %function, null
  br i1 %silent, label %done, label %call

call:
  call void %function(ptr %data, ptr %argument)
  br label %done

done:
  ret void
}

; Return storage of one reference for a number of bytes, aligned to 64, or to 16 if there are few; null if there is no
; memory.
define ptr @pjrt_storage(i64 %bytes) nounwind {
entry:
  %tiny = icmp ult i64 %bytes, 512
  br i1 %tiny, label %plain, label %look

plain: ; several times as fast as aligned memory
  %with.head = add i64 %bytes, 64
  %three = call ptr @malloc(i64 %with.head)
  %fails = icmp eq ptr %three, null
  br i1 %fails, label %nothing, label %behind

behind:
  %data.plain = getelementptr %storage, ptr %three, i64 1
  br label %fill

look:
  %small = icmp ult i64 %bytes, 4096
  br i1 %small, label %inline, label %pooled

inline:
  %more = add i64 %bytes, 127
  %size = and i64 %more, -64
  %one = call ptr @aligned_alloc(i64 64, i64 %size)
  %lacks = icmp eq ptr %one, null
  br i1 %lacks, label %nothing, label %inside

inside:
  %place = getelementptr %storage, ptr %one, i64 1
  br label %fill

pooled:
  %data = call ptr @pjrt_take(i64 %bytes)
  %none = icmp eq ptr %data, null
  br i1 %none, label %nothing, label %outside

outside:
  %two = call ptr @malloc(i64 64)
  br label %fill

fill:
  %storage = phi ptr [ %one, %inside ], [ %two, %outside ], [ %three, %behind ]
  %address = phi ptr [ %place, %inside ], [ %data, %outside ], [ %data.plain, %behind ]
  %release = phi ptr [ @release_inline, %inside ], [ @release_pooled, %outside ], [ @release_inline, %behind ]
  store i64 1, ptr %storage
  %data.at = getelementptr %storage, ptr %storage, i64 0, i32 1
  store ptr %address, ptr %data.at
  %release.at = getelementptr %storage, ptr %storage, i64 0, i32 2
  store ptr %release, ptr %release.at
  ret ptr %storage

nothing:
  ret ptr null
}

define internal ptr @foreign(ptr %data, ptr %release, ptr %first, ptr %second) nounwind {
  %storage = call ptr @malloc(i64 64)
  store i64 1, ptr %storage
  %data.at = getelementptr %storage, ptr %storage, i64 0, i32 1
  store ptr %data, ptr %data.at
  %release.at = getelementptr %storage, ptr %storage, i64 0, i32 2
  store ptr %release, ptr %release.at
  %first.at = getelementptr %storage, ptr %storage, i64 0, i32 3
  store ptr %first, ptr %first.at
  %second.at = getelementptr %storage, ptr %storage, i64 0, i32 4
  store ptr %second, ptr %second.at
  ret ptr %storage
}

define internal void @keep_storage(ptr %storage) nounwind {
  %before = atomicrmw add ptr %storage, i64 1 monotonic
  ret void
}

define internal void @drop_storage(ptr %storage) nounwind {
entry:
  %before = atomicrmw sub ptr %storage, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %release, label %done

release:
  %release.at = getelementptr %storage, ptr %storage, i64 0, i32 2
  %function = load ptr, ptr %release.at
  call void %function(ptr %storage)
  br label %done

done:
  ret void
}

; -- buffers

; Return a buffer that takes a reference of the storage and one of the event.
define ptr @pjrt_buffer(ptr %storage, ptr %device, ptr %memory, ptr %event, i64 %bytes, i32 %type, i64 %rank,
                        ptr %dims) nounwind {
entry:
  %dims.bytes = shl i64 %rank, 3
  %size = add i64 %dims.bytes, 80
  %buffer = call ptr @malloc(i64 %size)
  store ptr %storage, ptr %buffer
  %source.at = getelementptr %storage, ptr %storage, i64 0, i32 1
  %data = load ptr, ptr %source.at
  %data.at = getelementptr %buffer, ptr %buffer, i64 0, i32 1
  store ptr %data, ptr %data.at
  %device.at = getelementptr %buffer, ptr %buffer, i64 0, i32 2
  store ptr %device, ptr %device.at
  %memory.at = getelementptr %buffer, ptr %buffer, i64 0, i32 3
  store ptr %memory, ptr %memory.at
  %event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  store ptr %event, ptr %event.at
  %bytes.at = getelementptr %buffer, ptr %buffer, i64 0, i32 5
  store i64 %bytes, ptr %bytes.at
  %rank.at = getelementptr %buffer, ptr %buffer, i64 0, i32 6
  store i64 %rank, ptr %rank.at
  %type.at = getelementptr %buffer, ptr %buffer, i64 0, i32 7
  store i32 %type, ptr %type.at
  %deleted.at = getelementptr %buffer, ptr %buffer, i64 0, i32 8
  store i32 0, ptr %deleted.at
  %layout.at = getelementptr %buffer, ptr %buffer, i64 0, i32 9
  store ptr null, ptr %layout.at
  %donation.at = getelementptr %buffer, ptr %buffer, i64 0, i32 10
  store i64 0, ptr %donation.at
  %its.dims = getelementptr %buffer, ptr %buffer, i64 1
  br label %dimension

dimension:
  %d = phi i64 [ 0, %entry ], [ %d.next, %copy ]
  %all = icmp eq i64 %d, %rank
  br i1 %all, label %done, label %copy

copy:
  %from = getelementptr i64, ptr %dims, i64 %d
  %extent = load i64, ptr %from
  %to = getelementptr i64, ptr %its.dims, i64 %d
  store i64 %extent, ptr %to
  %d.next = add i64 %d, 1
  br label %dimension

done:
  ret ptr %buffer
}

; Delete a buffer: drop its reference of the storage. References of others, such as views, keep the data.
define void @pjrt_delete(ptr %buffer) nounwind {
entry:
  %deleted.at = getelementptr %buffer, ptr %buffer, i64 0, i32 8
  %before = atomicrmw xchg ptr %deleted.at, i32 1 acq_rel
  %first = icmp eq i32 %before, 0
  br i1 %first, label %drop, label %done

drop:
  %storage = load ptr, ptr %buffer
  call void @drop_storage(ptr %storage)
  br label %done

done:
  ret void
}

define internal ptr @refuse_deleted() nounwind {
  %error = call ptr @pjrt_error(i64 3, ptr @deleted.message, i64 35)
  ret ptr %error
}

define internal i1 @is_deleted(ptr %buffer) nounwind {
  %deleted.at = getelementptr %buffer, ptr %buffer, i64 0, i32 8
  %deleted = load i32, ptr %deleted.at
  %is = icmp ne i32 %deleted, 0
  ret i1 %is
}

define ptr @PJRT_Buffer_Destroy(ptr %args) nounwind {
entry:
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %none = icmp eq ptr %buffer, null
  br i1 %none, label %done, label %destroy

destroy:
  call void @pjrt_delete(ptr %buffer)
  %event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  %event = load ptr, ptr %event.at
  call void @pjrt_drop_event(ptr %event)
  call void @free(ptr %buffer)
  br label %done

done:
  ret ptr null
}

define ptr @PJRT_Buffer_Delete(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  call void @pjrt_delete(ptr %buffer)
  ret ptr null
}

define ptr @PJRT_Buffer_IsDeleted(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %deleted = call i1 @is_deleted(ptr %buffer)
  %byte = zext i1 %deleted to i8
  %is_deleted.at = getelementptr i64, ptr %args, i64 3
  store i8 %byte, ptr %is_deleted.at
  ret ptr null
}

define ptr @PJRT_Buffer_ElementType(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %type.at = getelementptr %buffer, ptr %buffer, i64 0, i32 7
  %type = load i32, ptr %type.at
  %out = getelementptr i64, ptr %args, i64 3
  store i32 %type, ptr %out
  ret ptr null
}

define ptr @PJRT_Buffer_Dimensions(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %dims = getelementptr %buffer, ptr %buffer, i64 1
  %dims.at = getelementptr ptr, ptr %args, i64 3
  store ptr %dims, ptr %dims.at
  %rank.at = getelementptr %buffer, ptr %buffer, i64 0, i32 6
  %rank = load i64, ptr %rank.at
  %num_dims.at = getelementptr i64, ptr %args, i64 4
  store i64 %rank, ptr %num_dims.at
  ret ptr null
}

define ptr @PJRT_Buffer_UnpaddedDimensions(ptr %args) nounwind {
  %error = call ptr @PJRT_Buffer_Dimensions(ptr %args)
  ret ptr %error
}

define ptr @PJRT_Buffer_DynamicDimensionIndices(ptr %args) nounwind {
  %indices.at = getelementptr ptr, ptr %args, i64 3
  store ptr null, ptr %indices.at
  %count.at = getelementptr i64, ptr %args, i64 4
  store i64 0, ptr %count.at
  ret ptr null
}

; Layouts have no tiles.
define ptr @PJRT_Buffer_GetMemoryLayout(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %rank.at = getelementptr %buffer, ptr %buffer, i64 0, i32 6
  %rank = load i64, ptr %rank.at
  %layout = call ptr @layout_of(ptr %buffer)
  %order.from = getelementptr ptr, ptr %layout, i64 2
  %order = load ptr, ptr %order.from
  %order.at = getelementptr ptr, ptr %args, i64 7
  store ptr %order, ptr %order.at
  %order.size.at = getelementptr i64, ptr %args, i64 8
  store i64 %rank, ptr %order.size.at
  %tiles.at = getelementptr i64, ptr %args, i64 11
  store i64 0, ptr %tiles.at
  %kind.at = getelementptr i64, ptr %args, i64 12
  store i32 0, ptr %kind.at
  ret ptr null
}

define ptr @PJRT_Buffer_OnDeviceSizeInBytes(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %bytes.at = getelementptr %buffer, ptr %buffer, i64 0, i32 5
  %bytes = load i64, ptr %bytes.at
  %out = getelementptr i64, ptr %args, i64 3
  store i64 %bytes, ptr %out
  ret ptr null
}

define ptr @PJRT_Buffer_Device(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %device.at = getelementptr %buffer, ptr %buffer, i64 0, i32 2
  %device = load ptr, ptr %device.at
  %out = getelementptr ptr, ptr %args, i64 3
  store ptr %device, ptr %out
  ret ptr null
}

define ptr @PJRT_Buffer_Memory(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %memory.at = getelementptr %buffer, ptr %buffer, i64 0, i32 3
  %memory = load ptr, ptr %memory.at
  %out = getelementptr ptr, ptr %args, i64 3
  store ptr %memory, ptr %out
  ret ptr null
}

; A memory's handle has the length of its kind in word 1 and the kind in word 3.
define ptr @PJRT_Memory_Kind(ptr %args) nounwind {
  %memory.at = getelementptr ptr, ptr %args, i64 2
  %memory = load ptr, ptr %memory.at
  %kind.at = getelementptr ptr, ptr %memory, i64 3
  %kind = load ptr, ptr %kind.at
  %size.at = getelementptr i64, ptr %memory, i64 1
  %size = load i64, ptr %size.at
  %kind.out = getelementptr ptr, ptr %args, i64 3
  store ptr %kind, ptr %kind.out
  %size.out = getelementptr i64, ptr %args, i64 4
  store i64 %size, ptr %size.out
  ret ptr null
}

define ptr @PJRT_Buffer_IsOnCpu(ptr %args) nounwind {
  %out = getelementptr i64, ptr %args, i64 3
  store i8 1, ptr %out
  ret ptr null
}

define ptr @PJRT_Buffer_ReadyEvent(ptr %args) nounwind {
entry:
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %deleted = call i1 @is_deleted(ptr %buffer)
  br i1 %deleted, label %refuse, label %give

give:
  %event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  %event = load ptr, ptr %event.at
  %kept = call ptr @kept_event(ptr %event)
  %out = getelementptr ptr, ptr %args, i64 3
  store ptr %kept, ptr %out
  ret ptr null

refuse:
  %error = call ptr @refuse_deleted()
  ret ptr %error
}

define ptr @PJRT_Buffer_UnsafePointer(ptr %args) nounwind {
entry:
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %deleted = call i1 @is_deleted(ptr %buffer)
  br i1 %deleted, label %refuse, label %give

give:
  %data.at = getelementptr %buffer, ptr %buffer, i64 0, i32 1
  %data = load ptr, ptr %data.at
  %out = getelementptr ptr, ptr %args, i64 3
  store ptr %data, ptr %out
  ret ptr null

refuse:
  %error = call ptr @refuse_deleted()
  ret ptr %error
}

define ptr @PJRT_Buffer_OpaqueDeviceMemoryDataPointer(ptr %args) nounwind {
  %error = call ptr @PJRT_Buffer_UnsafePointer(ptr %args)
  ret ptr %error
}

define ptr @PJRT_Buffer_IncreaseExternalReferenceCount(ptr %args) nounwind {
entry:
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %deleted = call i1 @is_deleted(ptr %buffer)
  br i1 %deleted, label %refuse, label %keep

keep:
  %storage = load ptr, ptr %buffer
  call void @keep_storage(ptr %storage)
  ret ptr null

refuse:
  %error = call ptr @refuse_deleted()
  ret ptr %error
}

define ptr @PJRT_Buffer_DecreaseExternalReferenceCount(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %storage = load ptr, ptr %buffer
  call void @drop_storage(ptr %storage)
  ret ptr null
}

; Return a buffer of the same storage on another device or in another memory: arrays are immutable.
define internal ptr @shared(ptr %buffer, ptr %device, ptr %memory) nounwind {
  %storage = load ptr, ptr %buffer
  call void @keep_storage(ptr %storage)
  %event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  %event = load ptr, ptr %event.at
  %kept = call ptr @kept_event(ptr %event)
  %bytes.at = getelementptr %buffer, ptr %buffer, i64 0, i32 5
  %bytes = load i64, ptr %bytes.at
  %rank.at = getelementptr %buffer, ptr %buffer, i64 0, i32 6
  %rank = load i64, ptr %rank.at
  %type.at = getelementptr %buffer, ptr %buffer, i64 0, i32 7
  %type = load i32, ptr %type.at
  %dims = getelementptr %buffer, ptr %buffer, i64 1
  %made = call ptr @pjrt_buffer(ptr %storage, ptr %device, ptr %memory, ptr %kept, i64 %bytes, i32 %type, i64 %rank,
                                ptr %dims)
  %layout.from = getelementptr %buffer, ptr %buffer, i64 0, i32 9
  %layout = load ptr, ptr %layout.from
  %layout.to = getelementptr %buffer, ptr %made, i64 0, i32 9
  store ptr %layout, ptr %layout.to
  ret ptr %made
}

; A device's handle begins with its default memory.
define ptr @PJRT_Buffer_CopyToDevice(ptr %args) nounwind {
entry:
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %deleted = call i1 @is_deleted(ptr %buffer)
  br i1 %deleted, label %refuse, label %share

share:
  %device.at = getelementptr ptr, ptr %args, i64 3
  %device = load ptr, ptr %device.at
  %memory = load ptr, ptr %device
  %made = call ptr @shared(ptr %buffer, ptr %device, ptr %memory)
  %out = getelementptr ptr, ptr %args, i64 4
  store ptr %made, ptr %out
  ret ptr null

refuse:
  %error = call ptr @refuse_deleted()
  ret ptr %error
}

; A memory's handle has its device in word 2.
define ptr @PJRT_Buffer_CopyToMemory(ptr %args) nounwind {
entry:
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %deleted = call i1 @is_deleted(ptr %buffer)
  br i1 %deleted, label %refuse, label %share

share:
  %memory.at = getelementptr ptr, ptr %args, i64 3
  %memory = load ptr, ptr %memory.at
  %device.at = getelementptr ptr, ptr %memory, i64 2
  %device = load ptr, ptr %device.at
  %made = call ptr @shared(ptr %buffer, ptr %device, ptr %memory)
  %out = getelementptr ptr, ptr %args, i64 4
  store ptr %made, ptr %out
  ret ptr null

refuse:
  %error = call ptr @refuse_deleted()
  ret ptr %error
}
