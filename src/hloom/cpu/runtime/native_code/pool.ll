; A pool of threads for loops with independent iterations.
;
; A region is opened by raising the generation to an odd number, and closed by raising it to the next even one.
; Threads that are awake, or wake up in time, enter it; the caller waits only for those that did, so that a late
; thread costs nothing. The iterations are divided into one slice for each thread and the slices into chunks; a
; thread that has finished its own slice takes chunks of the others'. Which thread computes a chunk changes no result.
; The caller polls after each of its chunks (`interruption.ll`), and drops the chunks that are left if it shall end.

%slot = type { i64, i64, ptr, i64, i64, [88 x i8] } ; next unit, end of the slice, pool, index, thread

%pool = type {
  i32, [124 x i8],             ;  0 generation
  i32, [124 x i8],             ;  2 active: threads in the region beside the caller
  i32, [124 x i8],             ;  4 sleepers
  i32, [124 x i8],             ;  6 waiting: the caller sleeps until active is 0
  i32, [124 x i8],             ;  8 busy: a region is open, or about to be opened
  ptr, ptr, i64, i64, i64,     ; 10 task, arguments, iterations, grain, units of a chunk
  i32, i32, i32, [76 x i8],    ; 15 threads with the caller's, stop, started
  [0 x %slot]                  ; 19 one for each thread
}

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Poll on behalf of a program; 0 if its context knows no function to poll with.
define internal i32 @poll(ptr %context, ptr %last) nounwind {
entry:
  %function.at = getelementptr ptr, ptr %context, i64 6
  %function = load ptr, ptr %function.at
  %none = icmp eq ptr %function, null
  br i1 %none, label %go.on, label %ask

ask:
  %address = ptrtoint ptr %context to i64
  %status = call i32 %function(i64 %address, ptr %last)
  ret i32 %status

go.on:
  ret i32 0
}

; Run chunks of the open region until none is left: of this thread's slice first, then of the slices after it.
; Given a context, poll after each chunk; a nonzero status empties all slices and is returned.
define internal i32 @work(ptr %pool, i64 %index, ptr %context) nounwind {
entry:
  %last = alloca i64
  store i64 0, ptr %last
  %polls = icmp ne ptr %context, null
  %task.at = getelementptr %pool, ptr %pool, i64 0, i32 10
  %task = load ptr, ptr %task.at
  %arguments.at = getelementptr %pool, ptr %pool, i64 0, i32 11
  %arguments = load ptr, ptr %arguments.at
  %iterations.at = getelementptr %pool, ptr %pool, i64 0, i32 12
  %iterations = load i64, ptr %iterations.at
  %grain.at = getelementptr %pool, ptr %pool, i64 0, i32 13
  %grain = load i64, ptr %grain.at
  %chunk.at = getelementptr %pool, ptr %pool, i64 0, i32 14
  %chunk = load i64, ptr %chunk.at
  %threads.at = getelementptr %pool, ptr %pool, i64 0, i32 15
  %threads.32 = load i32, ptr %threads.at
  %threads = zext i32 %threads.32 to i64
  br label %slice

slice:
  %visited = phi i64 [ 0, %entry ], [ %visited.next, %exhausted ]
  %all = icmp eq i64 %visited, %threads
  br i1 %all, label %done, label %choose

choose:
  %sum = add i64 %index, %visited
  %number = urem i64 %sum, %threads
  %next.at = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %number, i32 0
  %end.at = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %number, i32 1
  %end = load i64, ptr %end.at
  br label %take

take:
  %seen = load atomic i64, ptr %next.at monotonic, align 8
  %some = icmp slt i64 %seen, %end
  br i1 %some, label %claim, label %exhausted

claim:
  %first = atomicrmw add ptr %next.at, i64 %chunk monotonic
  %mine = icmp slt i64 %first, %end
  br i1 %mine, label %run, label %exhausted

run:
  %behind = add i64 %first, %chunk
  %limit = call i64 @llvm.smin.i64(i64 %behind, i64 %end)
  %begin.iteration = mul i64 %first, %grain
  %end.iteration = mul i64 %limit, %grain
  %end.within = call i64 @llvm.smin.i64(i64 %end.iteration, i64 %iterations)
  call void %task(ptr %arguments, i64 %begin.iteration, i64 %end.within)
  br i1 %polls, label %ask, label %take

ask:
  %status = call i32 @poll(ptr %context, ptr %last)
  %ends = icmp ne i32 %status, 0
  br i1 %ends, label %empty, label %take

empty:
  %emptied = phi i64 [ 0, %ask ], [ %emptied.next, %empty ]
  %its.next.at = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %emptied, i32 0
  %its.end.at = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %emptied, i32 1
  %its.end = load i64, ptr %its.end.at
  store atomic i64 %its.end, ptr %its.next.at monotonic, align 8
  %emptied.next = add i64 %emptied, 1
  %more = icmp ult i64 %emptied.next, %threads
  br i1 %more, label %empty, label %ended

ended:
  ret i32 1

exhausted:
  %visited.next = add i64 %visited, 1
  br label %slice

done:
  ret i32 0
}

; Thread function: wait for a region, enter it if it is still open, work, leave.
define internal ptr @worker(ptr %slot) nounwind {
entry:
  %pool.at = getelementptr %slot, ptr %slot, i64 0, i32 2
  %pool = load ptr, ptr %pool.at
  %index.at = getelementptr %slot, ptr %slot, i64 0, i32 3
  %index = load i64, ptr %index.at
  %generation.at = getelementptr %pool, ptr %pool, i64 0, i32 0
  %active.at = getelementptr %pool, ptr %pool, i64 0, i32 2
  %sleepers.at = getelementptr %pool, ptr %pool, i64 0, i32 4
  %waiting.at = getelementptr %pool, ptr %pool, i64 0, i32 6
  %stop.at = getelementptr %pool, ptr %pool, i64 0, i32 16
  br label %rest

rest:
  %last = phi i32 [ 0, %entry ], [ %generation, %leave ], [ %generation, %wake ]
  br label %watch

watch:
  %spins = phi i32 [ 0, %rest ], [ %spins.next, %spin ], [ 0, %awake ]
  %generation = load atomic i32, ptr %generation.at acquire, align 4
  %stop = load atomic i32, ptr %stop.at monotonic, align 4
  %stopping = icmp ne i32 %stop, 0
  br i1 %stopping, label %end, label %look

look:
  %odd = trunc i32 %generation to i1
  %new = icmp ne i32 %generation, %last
  %open = and i1 %odd, %new
  br i1 %open, label %enter, label %idle

idle:
  %patient = icmp ult i32 %spins, 6000
  br i1 %patient, label %spin, label %sleep

spin:
  call void @pause()
  %spins.next = add i32 %spins, 1
  br label %watch

sleep:
  %s1 = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  call void @futex_wait(ptr %generation.at, i32 %generation)
  %s2 = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  br label %awake

awake:
  br label %watch

enter:
  %a1 = atomicrmw add ptr %active.at, i32 1 seq_cst
  %again = load atomic i32, ptr %generation.at seq_cst, align 4
  %still = icmp eq i32 %again, %generation
  br i1 %still, label %busy, label %leave

busy:
  %status = call i32 @work(ptr %pool, i64 %index, ptr null)
  br label %leave

leave:
  %a2 = atomicrmw sub ptr %active.at, i32 1 seq_cst
  %only = icmp eq i32 %a2, 1
  %waiting = load atomic i32, ptr %waiting.at seq_cst, align 4
  %asleep = icmp ne i32 %waiting, 0
  %wakes = and i1 %only, %asleep
  br i1 %wakes, label %wake, label %rest

wake:
  call void @futex_wake(ptr %active.at)
  br label %rest

end:
  ret ptr null
}

; Start the threads with all signals blocked, so that the process's other threads handle them.
define internal void @start(ptr %pool) nounwind {
entry:
  %everything = alloca [128 x i8], align 8
  %before = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %everything, i8 -1, i64 128, i1 false)
  %m1 = call i32 @pthread_sigmask(i32 2, ptr %everything, ptr %before)
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 17
  store i32 1, ptr %started.at
  %threads.at = getelementptr %pool, ptr %pool, i64 0, i32 15
  %threads.32 = load i32, ptr %threads.at
  %threads = zext i32 %threads.32 to i64
  br label %next

next:
  %index = phi i64 [ 1, %entry ], [ %index.next, %create ]
  %all = icmp uge i64 %index, %threads
  br i1 %all, label %done, label %create

create:
  %slot = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %index
  %pool.at = getelementptr %slot, ptr %slot, i64 0, i32 2
  store ptr %pool, ptr %pool.at
  %index.at = getelementptr %slot, ptr %slot, i64 0, i32 3
  store i64 %index, ptr %index.at
  %thread.at = getelementptr %slot, ptr %slot, i64 0, i32 4
  %failed = call i32 @pthread_create(ptr %thread.at, ptr null, ptr @worker, ptr %slot)
  %lacks = icmp ne i32 %failed, 0
  %thread = load i64, ptr %thread.at
  %kept = select i1 %lacks, i64 0, i64 %thread ; other threads take its slice
  store i64 %kept, ptr %thread.at
  %index.next = add i64 %index, 1
  br label %next

done:
  %m2 = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret void
}

; End the threads for good: wait until no region is open, and keep the pool taken, so that later loops run in the thread
; of their caller. Other threads may run programs meanwhile.
define void @hloom_pool_stop(ptr %pool) nounwind {
entry:
  %stop.at = getelementptr %pool, ptr %pool, i64 0, i32 16
  %before = atomicrmw xchg ptr %stop.at, i32 1 seq_cst
  %first = icmp eq i32 %before, 0
  br i1 %first, label %wait, label %done

wait:
  %busy.at = getelementptr %pool, ptr %pool, i64 0, i32 8
  br label %take

take:
  %held = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %held, 1
  br i1 %got, label %taken, label %pause

pause:
  call void @pause()
  br label %take

taken:
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 17
  %started = load i32, ptr %started.at
  %runs = icmp ne i32 %started, 0
  br i1 %runs, label %halt, label %done

halt:
  %generation.at = getelementptr %pool, ptr %pool, i64 0, i32 0
  %g = atomicrmw add ptr %generation.at, i32 2 seq_cst
  call void @futex_wake(ptr %generation.at)
  %threads.at = getelementptr %pool, ptr %pool, i64 0, i32 15
  %threads.32 = load i32, ptr %threads.at
  %threads = zext i32 %threads.32 to i64
  br label %next

next:
  %index = phi i64 [ 1, %halt ], [ %index.next, %joined ]
  %all = icmp uge i64 %index, %threads
  br i1 %all, label %stopped, label %look

look:
  %thread.at = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %index, i32 4
  %thread = load i64, ptr %thread.at
  %there = icmp ne i64 %thread, 0
  br i1 %there, label %join, label %joined

join:
  %r = call i32 @pthread_join(i64 %thread, ptr null)
  br label %joined

joined:
  %index.next = add i64 %index, 1
  br label %next

stopped:
  store i32 0, ptr %started.at
  br label %done

done:
  ret void
}

; Run task(arguments, begin, end) over all iterations, in ranges that begin at multiples of the grain; return nonzero
; if that ended early. The context's first word is the pool; without one, and while the pool is taken, the ranges run
; one after the other.
define i32 @hloom_parallel(ptr %context, ptr %task, ptr %arguments, i64 %iterations, i64 %grain) nounwind {
entry:
  %last = alloca i64
  store i64 0, ptr %last
  %no.context = icmp eq ptr %context, null
  br i1 %no.context, label %serial, label %find

find:
  %pool = load ptr, ptr %context
  %no.pool = icmp eq ptr %pool, null
  br i1 %no.pool, label %serial, label %count

count:
  %grain.less = sub i64 %grain, 1
  %iterations.up = add i64 %iterations, %grain.less
  %units = udiv i64 %iterations.up, %grain
  %one = icmp slt i64 %units, 2
  br i1 %one, label %serial, label %lock

lock:
  %busy.at = getelementptr %pool, ptr %pool, i64 0, i32 8
  %held = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %held, 1
  br i1 %got, label %begin, label %serial

begin:
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 17
  %started = load i32, ptr %started.at
  %cold = icmp eq i32 %started, 0
  br i1 %cold, label %start, label %prepare

start:
  call void @start(ptr %pool)
  br label %prepare

prepare:
  %task.at = getelementptr %pool, ptr %pool, i64 0, i32 10
  store ptr %task, ptr %task.at
  %arguments.at = getelementptr %pool, ptr %pool, i64 0, i32 11
  store ptr %arguments, ptr %arguments.at
  %iterations.at = getelementptr %pool, ptr %pool, i64 0, i32 12
  store i64 %iterations, ptr %iterations.at
  %grain.at = getelementptr %pool, ptr %pool, i64 0, i32 13
  store i64 %grain, ptr %grain.at
  %threads.at = getelementptr %pool, ptr %pool, i64 0, i32 15
  %threads.32 = load i32, ptr %threads.at
  %threads = zext i32 %threads.32 to i64
  %pieces = mul i64 %threads, 4
  %chunk.low = udiv i64 %units, %pieces
  %chunk = add i64 %chunk.low, 1
  %chunk.at = getelementptr %pool, ptr %pool, i64 0, i32 14
  store i64 %chunk, ptr %chunk.at
  br label %divide

divide:
  %index = phi i64 [ 0, %prepare ], [ %index.next, %divide ]
  %first = phi i64 [ 0, %prepare ], [ %behind, %divide ]
  %index.next = add i64 %index, 1
  %share = mul i64 %units, %index.next
  %behind = udiv i64 %share, %threads
  %next.at = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %index, i32 0
  store i64 %first, ptr %next.at
  %end.at = getelementptr %pool, ptr %pool, i64 0, i32 19, i64 %index, i32 1
  store i64 %behind, ptr %end.at
  %more = icmp ult i64 %index.next, %threads
  br i1 %more, label %divide, label %open

open:
  %generation.at = getelementptr %pool, ptr %pool, i64 0, i32 0
  %g1 = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %sleepers.at = getelementptr %pool, ptr %pool, i64 0, i32 4
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %mine

wake:
  call void @futex_wake(ptr %generation.at)
  br label %mine

mine:
  %status = call i32 @work(ptr %pool, i64 0, ptr %context)
  %g2 = atomicrmw add ptr %generation.at, i32 1 seq_cst
  %active.at = getelementptr %pool, ptr %pool, i64 0, i32 2
  br label %join

join:
  %spins = phi i32 [ 0, %mine ], [ %spins.next, %spin ]
  %active = load atomic i32, ptr %active.at seq_cst, align 4
  %alone = icmp eq i32 %active, 0
  br i1 %alone, label %release, label %spin.or.sleep

spin.or.sleep:
  %patient = icmp ult i32 %spins, 20000
  br i1 %patient, label %spin, label %announce

spin:
  call void @pause()
  %spins.next = add i32 %spins, 1
  br label %join

announce:
  %waiting.at = getelementptr %pool, ptr %pool, i64 0, i32 6
  store atomic i32 1, ptr %waiting.at seq_cst, align 4
  br label %sleep

sleep:
  %left = load atomic i32, ptr %active.at seq_cst, align 4
  %gone = icmp eq i32 %left, 0
  br i1 %gone, label %joined, label %wait

wait:
  call void @futex_wait(ptr %active.at, i32 %left)
  br label %sleep

joined:
  store atomic i32 0, ptr %waiting.at seq_cst, align 4
  br label %release

release:
  store atomic i32 0, ptr %busy.at release, align 4
  ret i32 %status

serial:
  br i1 %no.context, label %whole, label %cut

whole:
  call void %task(ptr %arguments, i64 0, i64 %iterations)
  ret i32 0

; 32 ranges, so that the caller can poll between them.
cut:
  %part = udiv i64 %iterations, 32
  %part.grains = udiv i64 %part, %grain
  %part.units = add i64 %part.grains, 1
  %part.size = mul i64 %part.units, %grain
  br label %range

range:
  %range.begin = phi i64 [ 0, %cut ], [ %range.end, %next.range ]
  %range.next = add i64 %range.begin, %part.size
  %range.end = call i64 @llvm.smin.i64(i64 %range.next, i64 %iterations)
  call void %task(ptr %arguments, i64 %range.begin, i64 %range.end)
  %range.last = icmp sge i64 %range.end, %iterations
  br i1 %range.last, label %complete, label %next.range

next.range:
  %range.status = call i32 @poll(ptr %context, ptr %last)
  %range.ends = icmp ne i32 %range.status, 0
  br i1 %range.ends, label %early, label %range

early:
  ret i32 1

complete:
  ret i32 0
}
