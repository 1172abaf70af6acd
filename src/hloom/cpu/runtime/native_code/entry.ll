; Entry from Python to programs: a builtin function (METH_FASTCALL) that takes numpy arrays and allocates its results.
;
; A descriptor, the data of a numpy array that is the builtin's self, holds the data of the program. Arguments that are
; not arrays of exactly the right form go to the fallback, a Python callable that converts them or raises an error.

%array = type {          ; PyArrayObject_fields
  i64, ptr,              ;  0 reference count, type
  ptr, i32, ptr, ptr,    ;  2 data, rank, dimensions, strides
  ptr, ptr, i32,         ;  6 base, descr, flags
  ptr, ptr, ptr          ;  9 weak references, buffer info, memory handler
}

%input = type { ptr, i64, ptr }       ; descr, rank, dimensions
%output = type { ptr, i64, ptr, i64 } ; descr, rank, dimensions, bytes

%descriptor = type {
  ptr, ptr,       ;  0 program, context
  ptr, i64, i64,  ;  2 arena, its bytes, whether it is in use
  ptr, ptr, ptr,  ;  5 memory, numpy's handler for it, fallback
  i64, i64,       ;  8 numbers of inputs and outputs
  i64, i64,       ; 10 whether the result is a tuple, whether to release the GIL
  ptr, ptr,       ; 12 numpy's array type, PyArray_NewFromDescr
  ptr, ptr        ; 14 inputs, outputs
}

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

; Return the data of an argument; null unless it is a row-major, aligned array of the right type and dimensions.
define internal ptr @checked(ptr %object, ptr %type, ptr %input) nounwind {
entry:
  %type.at = getelementptr %array, ptr %object, i64 0, i32 1
  %its.type = load ptr, ptr %type.at
  %is.array = icmp eq ptr %its.type, %type
  br i1 %is.array, label %look, label %wrong

look:
  %descr.at = getelementptr %array, ptr %object, i64 0, i32 7
  %descr = load ptr, ptr %descr.at
  %descr.wanted = load ptr, ptr %input
  %same.descr = icmp eq ptr %descr, %descr.wanted
  %rank.at = getelementptr %array, ptr %object, i64 0, i32 3
  %rank.32 = load i32, ptr %rank.at
  %rank = sext i32 %rank.32 to i64
  %rank.wanted.at = getelementptr %input, ptr %input, i64 0, i32 1
  %rank.wanted = load i64, ptr %rank.wanted.at
  %same.rank = icmp eq i64 %rank, %rank.wanted
  %flags.at = getelementptr %array, ptr %object, i64 0, i32 8
  %flags = load i32, ptr %flags.at
  %relevant = and i32 %flags, 257 ; contiguous rows, aligned
  %plain = icmp eq i32 %relevant, 257
  %so.far = and i1 %same.descr, %same.rank
  %good = and i1 %so.far, %plain
  br i1 %good, label %measure, label %wrong

measure:
  %dimensions.at = getelementptr %array, ptr %object, i64 0, i32 4
  %dimensions = load ptr, ptr %dimensions.at
  %wanted.at = getelementptr %input, ptr %input, i64 0, i32 2
  %wanted = load ptr, ptr %wanted.at
  br label %dimension

dimension:
  %d = phi i64 [ 0, %measure ], [ %d.next, %compare ]
  %all = icmp eq i64 %d, %rank
  br i1 %all, label %right, label %compare

compare:
  %size.at = getelementptr i64, ptr %dimensions, i64 %d
  %size = load i64, ptr %size.at
  %size.wanted.at = getelementptr i64, ptr %wanted, i64 %d
  %size.wanted = load i64, ptr %size.wanted.at
  %equal = icmp eq i64 %size, %size.wanted
  %d.next = add i64 %d, 1
  br i1 %equal, label %dimension, label %wrong

right:
  %data.at = getelementptr %array, ptr %object, i64 0, i32 2
  %data = load ptr, ptr %data.at
  ret ptr %data

wrong:
  ret ptr null
}

; Allocate an array; small ones use numpy's memory. Null, with an exception set, if there is no memory.
define internal ptr @fresh(ptr %descriptor, ptr %output) nounwind {
entry:
  %type.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 12
  %type = load ptr, ptr %type.at
  %make.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 13
  %make = load ptr, ptr %make.at
  %descr = load ptr, ptr %output
  %rank.at = getelementptr %output, ptr %output, i64 0, i32 1
  %rank.64 = load i64, ptr %rank.at
  %rank = trunc i64 %rank.64 to i32
  %dimensions.at = getelementptr %output, ptr %output, i64 0, i32 2
  %dimensions = load ptr, ptr %dimensions.at
  %bytes.at = getelementptr %output, ptr %output, i64 0, i32 3
  %bytes = load i64, ptr %bytes.at
  call void @Py_IncRef(ptr %descr) ; the new array takes a reference
  %small = icmp ult i64 %bytes, 1024
  br i1 %small, label %plain, label %take

take:
  %memory.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 5
  %memory = load ptr, ptr %memory.at
  %data = call ptr @hloom_take(ptr %memory, i64 %bytes)
  %lacks = icmp eq ptr %data, null
  br i1 %lacks, label %plain, label %wrap

plain:
  %simple = call ptr %make(ptr %type, ptr %descr, i32 %rank, ptr %dimensions, ptr null, ptr null, i32 0, ptr null)
  ret ptr %simple

wrap:
  %made = call ptr %make(ptr %type, ptr %descr, i32 %rank, ptr %dimensions, ptr null, ptr %data, i32 1281, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %drop, label %own

own:
  %flags.at = getelementptr %array, ptr %made, i64 0, i32 8
  %flags = load i32, ptr %flags.at
  %flags.own = or i32 %flags, 4
  store i32 %flags.own, ptr %flags.at
  %handler.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 6
  %handler = load ptr, ptr %handler.at
  call void @Py_IncRef(ptr %handler)
  %its.handler.at = getelementptr %array, ptr %made, i64 0, i32 11
  store ptr %handler, ptr %its.handler.at
  ret ptr %made

drop:
  call void @hloom_give(ptr %memory, ptr %data)
  ret ptr null
}

; Return an arena for one call: the program's own, or another one while that is in use.
define internal ptr @borrow(ptr %descriptor) nounwind {
entry:
  %bytes.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 3
  %bytes = load i64, ptr %bytes.at
  %memory.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 5
  %memory = load ptr, ptr %memory.at
  %used.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 4
  %used = load i64, ptr %used.at
  %free = icmp eq i64 %used, 0
  br i1 %free, label %own, label %another

own:
  %arena.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 2
  %arena = load ptr, ptr %arena.at
  %missing = icmp eq ptr %arena, null
  br i1 %missing, label %make, label %mark

make:
  %made = call ptr @hloom_take(ptr %memory, i64 %bytes)
  store ptr %made, ptr %arena.at
  %lacks = icmp eq ptr %made, null
  br i1 %lacks, label %nothing, label %mark

mark:
  %given = phi ptr [ %arena, %own ], [ %made, %make ]
  store i64 1, ptr %used.at
  ret ptr %given

another:
  %other = call ptr @hloom_take(ptr %memory, i64 %bytes)
  ret ptr %other

nothing:
  ret ptr null
}

define internal void @return_arena(ptr %descriptor, ptr %arena) nounwind {
entry:
  %own.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 2
  %own = load ptr, ptr %own.at
  %is.own = icmp eq ptr %own, %arena
  br i1 %is.own, label %unmark, label %give

unmark:
  %used.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 4
  store i64 0, ptr %used.at
  ret void

give:
  %memory.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 5
  %memory = load ptr, ptr %memory.at
  call void @hloom_give(ptr %memory, ptr %arena)
  ret void
}

define ptr @hloom_call(ptr %self, ptr %objects, i64 %count) nounwind {
entry:
  %descriptor.at = getelementptr %array, ptr %self, i64 0, i32 2
  %descriptor = load ptr, ptr %descriptor.at
  %inputs.count.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 8
  %inputs.count = load i64, ptr %inputs.count.at
  %outputs.count.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 9
  %outputs.count = load i64, ptr %outputs.count.at
  %sources = alloca ptr, i64 %inputs.count
  %targets = alloca ptr, i64 %outputs.count
  %arrays = alloca ptr, i64 %outputs.count
  %type.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 12
  %type = load ptr, ptr %type.at
  %inputs.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 14
  %inputs = load ptr, ptr %inputs.at
  %outputs.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 15
  %outputs = load ptr, ptr %outputs.at
  %same.count = icmp eq i64 %count, %inputs.count
  br i1 %same.count, label %argument, label %slow

argument:
  %i = phi i64 [ 0, %entry ], [ %i.next, %fits ]
  %all.in = icmp eq i64 %i, %inputs.count
  br i1 %all.in, label %result, label %check

check:
  %object.at = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %object.at
  %input = getelementptr %input, ptr %inputs, i64 %i
  %source = call ptr @checked(ptr %object, ptr %type, ptr %input)
  %unfit = icmp eq ptr %source, null
  br i1 %unfit, label %slow, label %fits

fits:
  %source.at = getelementptr ptr, ptr %sources, i64 %i
  store ptr %source, ptr %source.at
  %i.next = add i64 %i, 1
  br label %argument

result:
  %j = phi i64 [ 0, %argument ], [ %j.next, %made ]
  %all.out = icmp eq i64 %j, %outputs.count
  br i1 %all.out, label %space, label %make

make:
  %output = getelementptr %output, ptr %outputs, i64 %j
  %array = call ptr @fresh(ptr %descriptor, ptr %output)
  %lacks = icmp eq ptr %array, null
  br i1 %lacks, label %undo, label %made

made:
  %array.at = getelementptr ptr, ptr %arrays, i64 %j
  store ptr %array, ptr %array.at
  %data.at = getelementptr %array, ptr %array, i64 0, i32 2
  %data = load ptr, ptr %data.at
  %target.at = getelementptr ptr, ptr %targets, i64 %j
  store ptr %data, ptr %target.at
  %j.next = add i64 %j, 1
  br label %result

space:
  %bytes.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 3
  %bytes = load i64, ptr %bytes.at
  %needs.arena = icmp ne i64 %bytes, 0
  br i1 %needs.arena, label %lend, label %ready

lend:
  %lent = call ptr @borrow(ptr %descriptor)
  %no.arena = icmp eq ptr %lent, null
  br i1 %no.arena, label %give.up, label %ready

ready:
  %arena = phi ptr [ null, %space ], [ %lent, %lend ]
  %program = load ptr, ptr %descriptor
  %context.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 1
  %context = load ptr, ptr %context.at
  %long.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 11
  %long = load i64, ptr %long.at
  %is.long = icmp ne i64 %long, 0
  br i1 %is.long, label %run.alone, label %run

run:
  %status.short = call i32 %program(ptr %sources, ptr %targets, ptr %arena, ptr %context)
  br label %ran

run.alone:
  %status.long = call i32 @hloom_execute(ptr %program, ptr %sources, ptr %targets, ptr %arena, ptr %context)
  br label %ran

ran:
  %status = phi i32 [ %status.short, %run ], [ %status.long, %run.alone ]
  br i1 %needs.arena, label %return, label %see

return:
  call void @return_arena(ptr %descriptor, ptr %arena)
  br label %see

see:
  %complete = icmp eq i32 %status, 0
  br i1 %complete, label %hand.out, label %undo

hand.out:
  %tuple.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 10
  %tuple = load i64, ptr %tuple.at
  %is.tuple = icmp ne i64 %tuple, 0
  br i1 %is.tuple, label %bundle, label %single

single:
  %only = load ptr, ptr %arrays
  ret ptr %only

bundle:
  %bundle.made = call ptr @PyTuple_New(i64 %outputs.count)
  %no.bundle = icmp eq ptr %bundle.made, null
  br i1 %no.bundle, label %undo, label %item

item:
  %k = phi i64 [ 0, %bundle ], [ %k.next, %set ]
  %all.set = icmp eq i64 %k, %outputs.count
  br i1 %all.set, label %bundled, label %set

set:
  %item.at = getelementptr ptr, ptr %arrays, i64 %k
  %item.array = load ptr, ptr %item.at
  %s = call i32 @PyTuple_SetItem(ptr %bundle.made, i64 %k, ptr %item.array)
  %k.next = add i64 %k, 1
  br label %item

bundled:
  ret ptr %bundle.made

; An exception is set: release the results that were allocated.
undo:
  %there = phi i64 [ %j, %make ], [ %outputs.count, %bundle ], [ %outputs.count, %see ]
  br label %drop

drop:
  %n = phi i64 [ 0, %undo ], [ %n.next, %dropping ]
  %dropped = icmp eq i64 %n, %there
  br i1 %dropped, label %failed, label %dropping

dropping:
  %drop.at = getelementptr ptr, ptr %arrays, i64 %n
  %drop.array = load ptr, ptr %drop.at
  call void @Py_DecRef(ptr %drop.array)
  %n.next = add i64 %n, 1
  br label %drop

failed:
  ret ptr null

; No memory for the arena: release the results, and let the fallback raise the error.
give.up:
  %m = phi i64 [ 0, %lend ], [ %m.next, %giving ]
  %given = icmp eq i64 %m, %outputs.count
  br i1 %given, label %slow, label %giving

giving:
  %give.at = getelementptr ptr, ptr %arrays, i64 %m
  %give.array = load ptr, ptr %give.at
  call void @Py_DecRef(ptr %give.array)
  %m.next = add i64 %m, 1
  br label %give.up

slow:
  %fallback.at = getelementptr %descriptor, ptr %descriptor, i64 0, i32 7
  %fallback = load ptr, ptr %fallback.at
  %answer = call ptr @PyObject_Vectorcall(ptr %fallback, ptr %objects, i64 %count, ptr null)
  ret ptr %answer
}
