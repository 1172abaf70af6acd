; Recycled memory for results and arenas: fresh memory costs a page fault for every page, often more time than the
; computation that fills it.
;
; There are four block sizes for each power of two. A block starts with a header of 64 bytes; the memory behind it, at
; a multiple of 64, is handed out. Callers hold the GIL.

%head = type { i64, i64, ptr, [40 x i8] } ; size of the block, number of its size, next free one

%memory = type { i64, i64, [256 x ptr] } ; bytes kept, at most, free blocks by size

declare i32 @posix_memalign(ptr, i64, i64)
declare i32 @madvise(ptr, i64, i32)
declare void @free(ptr)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Return memory for a number of bytes; null if there is none.
define ptr @hloom_take(ptr %memory, i64 %bytes) nounwind {
entry:
  %place = alloca ptr
  %absurd = icmp ugt i64 %bytes, 140737488355328
  br i1 %absurd, label %nothing, label %classify

classify:
  %needed.less = add i64 %bytes, 127
  %zeros = call i64 @llvm.ctlz.i64(i64 %needed.less, i1 false)
  %exponent = sub i64 64, %zeros ; 2^exponent is the least power of two that holds head and bytes
  %step.exponent = sub i64 %exponent, 3
  %step = shl i64 1, %step.exponent
  %step.less = sub i64 %step, 1
  %needed = add i64 %needed.less, 1
  %up = add i64 %needed, %step.less
  %steps = lshr i64 %up, %step.exponent ; 5 to 8
  %size = shl i64 %steps, %step.exponent
  %base = shl i64 %exponent, 2
  %above = sub i64 %steps, 5
  %number = add i64 %base, %above
  %free.at = getelementptr %memory, ptr %memory, i64 0, i32 2, i64 %number
  %free = load ptr, ptr %free.at
  %none = icmp eq ptr %free, null
  br i1 %none, label %fresh, label %reuse

reuse:
  %next.at = getelementptr %head, ptr %free, i64 0, i32 2
  %next = load ptr, ptr %next.at
  store ptr %next, ptr %free.at
  %kept = load i64, ptr %memory
  %kept.less = sub i64 %kept, %size
  store i64 %kept.less, ptr %memory
  %again = getelementptr %head, ptr %free, i64 1
  ret ptr %again

fresh:
  %large = icmp uge i64 %size, 4194304
  %alignment = select i1 %large, i64 2097152, i64 64
  %failed = call i32 @posix_memalign(ptr %place, i64 %alignment, i64 %size)
  %lacks = icmp ne i32 %failed, 0
  br i1 %lacks, label %nothing, label %got

got:
  %block = load ptr, ptr %place
  br i1 %large, label %advise, label %ready

advise:
  %a = call i32 @madvise(ptr %block, i64 %size, i32 14) ; huge pages
  br label %ready

ready:
  %size.at = getelementptr %head, ptr %block, i64 0, i32 0
  store i64 %size, ptr %size.at
  %number.at = getelementptr %head, ptr %block, i64 0, i32 1
  store i64 %number, ptr %number.at
  %data = getelementptr %head, ptr %block, i64 1
  ret ptr %data

nothing:
  ret ptr null
}

; Return memory for later use.
define void @hloom_give(ptr %memory, ptr %data) nounwind {
entry:
  %nothing = icmp eq ptr %data, null
  br i1 %nothing, label %done, label %look

look:
  %block = getelementptr %head, ptr %data, i64 -1
  %size.at = getelementptr %head, ptr %block, i64 0, i32 0
  %size = load i64, ptr %size.at
  %kept = load i64, ptr %memory
  %kept.more = add i64 %kept, %size
  %limit.at = getelementptr %memory, ptr %memory, i64 0, i32 1
  %limit = load i64, ptr %limit.at
  %full = icmp ugt i64 %kept.more, %limit
  br i1 %full, label %drop, label %keep

keep:
  store i64 %kept.more, ptr %memory
  %number.at = getelementptr %head, ptr %block, i64 0, i32 1
  %number = load i64, ptr %number.at
  %free.at = getelementptr %memory, ptr %memory, i64 0, i32 2, i64 %number
  %next = load ptr, ptr %free.at
  %next.at = getelementptr %head, ptr %block, i64 0, i32 2
  store ptr %next, ptr %next.at
  store ptr %block, ptr %free.at
  ret void

drop:
  call void @free(ptr %block)
  ret void

done:
  ret void
}

; numpy's interface for the memory of arrays (PyDataMemAllocator, NEP 49).

define ptr @hloom_memory_malloc(ptr %memory, i64 %bytes) nounwind {
  %data = call ptr @hloom_take(ptr %memory, i64 %bytes)
  ret ptr %data
}

define ptr @hloom_memory_calloc(ptr %memory, i64 %count, i64 %each) nounwind {
entry:
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %bytes = extractvalue { i64, i1 } %product, 0
  %absurd = extractvalue { i64, i1 } %product, 1
  br i1 %absurd, label %nothing, label %take

take:
  %data = call ptr @hloom_take(ptr %memory, i64 %bytes)
  %lacks = icmp eq ptr %data, null
  br i1 %lacks, label %nothing, label %clear

clear:
  call void @llvm.memset.p0.i64(ptr %data, i8 0, i64 %bytes, i1 false)
  ret ptr %data

nothing:
  ret ptr null
}

define ptr @hloom_memory_realloc(ptr %memory, ptr %old, i64 %bytes) nounwind {
entry:
  %data = call ptr @hloom_take(ptr %memory, i64 %bytes)
  %lacks = icmp eq ptr %data, null
  %first = icmp eq ptr %old, null
  %only = or i1 %lacks, %first
  br i1 %only, label %done, label %move

move:
  %block = getelementptr %head, ptr %old, i64 -1
  %size = load i64, ptr %block
  %room = sub i64 %size, 64
  %length = call i64 @llvm.umin.i64(i64 %room, i64 %bytes)
  call void @llvm.memcpy.p0.p0.i64(ptr %data, ptr %old, i64 %length, i1 false)
  call void @hloom_give(ptr %memory, ptr %old)
  br label %done

done:
  ret ptr %data
}

define void @hloom_memory_free(ptr %memory, ptr %data, i64 %bytes) nounwind {
  call void @hloom_give(ptr %memory, ptr %data)
  ret void
}
