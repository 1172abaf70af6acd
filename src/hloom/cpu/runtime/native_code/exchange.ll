; Exchange of arrays with the participants of a rendezvous in other processes, by functions of MPI's form. Each of them is
; represented by a stand-in: a participant record with memory of this process, into which the parts of its arrays that
; are needed here are received. `hloom.cpu.runtime.exchange` writes these tables.

%functions = type { ptr, ptr, ptr, i64, i64 }  ; MPI_Isend, MPI_Irecv, MPI_Test; the handles of MPI_BYTE and the communicator
%span = type { i64, i64 }                      ; first, end
%stand_in = type { i64, ptr }                  ; position in the group, participant record
%segment = type { i64, i64, i64, i64, i64, i64 } ; position, number of the array, offset, bytes of a row, bytes to the next, rows
%message = type { i64, i64, i64, ptr, i64, %span, i64, i64 } ; kind, rank, tag, memory, bytes, segments, request, 1 if complete

; Kinds of messages: 0 receive, 1 send, through memory of the message that begins with the form of the operands;
; 2 receive, 3 send, of one segment, in place.

%exchange = type {
  ptr, ptr,        ;  0 functions, rendezvous
  i64, i64,        ;  2 round, 1 if its messages are under way
  [2 x %span],     ;  4 rounds of steps 1 and 2
  ptr, ptr, ptr,   ;  5 rounds as spans of messages, messages, segments
  %span, ptr,      ;  8 stand-ins
  i64, i64,        ; 10 form, polls before the thread lets others run
  i64              ; 12 the error that an MPI function returned
}

declare i32 @sched_yield()

@exchange_patience = internal constant i64 20000000 ; nanoseconds before the host waits

; Return the address of a segment.
define internal ptr @segment_place(ptr %rendezvous, ptr %segment) nounwind {
  %position = load i64, ptr %segment
  %record.at = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 7, i64 %position
  %record = load ptr, ptr %record.at
  %array.at = getelementptr %segment, ptr %segment, i64 0, i32 1
  %array = load i64, ptr %array.at
  %address.at = getelementptr %participant, ptr %record, i64 0, i32 8, i64 %array
  %address = load ptr, ptr %address.at
  %offset.at = getelementptr %segment, ptr %segment, i64 0, i32 2
  %offset = load i64, ptr %offset.at
  %place = getelementptr i8, ptr %address, i64 %offset
  ret ptr %place
}

; Copy the segments of a message into its memory, or out of it.
define internal void @copy_segments(ptr %exchange, ptr %message, i1 %in) nounwind {
entry:
  %rendezvous.at = getelementptr %exchange, ptr %exchange, i64 0, i32 1
  %rendezvous = load ptr, ptr %rendezvous.at
  %segments.at = getelementptr %exchange, ptr %exchange, i64 0, i32 7
  %segments = load ptr, ptr %segments.at
  %memory.at = getelementptr %message, ptr %message, i64 0, i32 3
  %memory = load ptr, ptr %memory.at
  %start = getelementptr i64, ptr %memory, i64 1
  %first.at = getelementptr %message, ptr %message, i64 0, i32 5, i32 0
  %first = load i64, ptr %first.at
  %end.at = getelementptr %message, ptr %message, i64 0, i32 5, i32 1
  %end = load i64, ptr %end.at
  br label %next

next:
  %number = phi i64 [ %first, %entry ], [ %number.next, %copied ]
  %here = phi ptr [ %start, %entry ], [ %here.next, %copied ]
  %more = icmp ult i64 %number, %end
  br i1 %more, label %find, label %done

find:
  %segment = getelementptr %segment, ptr %segments, i64 %number
  %place = call ptr @segment_place(ptr %rendezvous, ptr %segment)
  %size.at = getelementptr %segment, ptr %segment, i64 0, i32 3
  %size = load i64, ptr %size.at
  %stride.at = getelementptr %segment, ptr %segment, i64 0, i32 4
  %stride = load i64, ptr %stride.at
  %rows.at = getelementptr %segment, ptr %segment, i64 0, i32 5
  %rows = load i64, ptr %rows.at
  br label %row

row:
  %done.rows = phi i64 [ 0, %find ], [ %rows.next, %row ]
  %theirs = phi ptr [ %here, %find ], [ %theirs.next, %row ]
  %mine = phi ptr [ %place, %find ], [ %mine.next, %row ]
  %target = select i1 %in, ptr %theirs, ptr %mine
  %source = select i1 %in, ptr %mine, ptr %theirs
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  %theirs.next = getelementptr i8, ptr %theirs, i64 %size
  %mine.next = getelementptr i8, ptr %mine, i64 %stride
  %rows.next = add i64 %done.rows, 1
  %another = icmp ult i64 %rows.next, %rows
  br i1 %another, label %row, label %copied

copied:
  %here.next = phi ptr [ %theirs.next, %row ]
  %number.next = add i64 %number, 1
  br label %next

done:
  ret void
}

; Begin a message; return the status of MPI.
define internal i32 @begin_message(ptr %exchange, ptr %message) nounwind {
entry:
  %functions = load ptr, ptr %exchange
  %complete.at = getelementptr %message, ptr %message, i64 0, i32 7
  store i64 0, ptr %complete.at
  %kind = load i64, ptr %message
  %memory.at = getelementptr %message, ptr %message, i64 0, i32 3
  %in.place = icmp uge i64 %kind, 2
  br i1 %in.place, label %find, label %look

find:
  %rendezvous.at = getelementptr %exchange, ptr %exchange, i64 0, i32 1
  %rendezvous = load ptr, ptr %rendezvous.at
  %segments.at = getelementptr %exchange, ptr %exchange, i64 0, i32 7
  %segments = load ptr, ptr %segments.at
  %first.at = getelementptr %message, ptr %message, i64 0, i32 5, i32 0
  %first = load i64, ptr %first.at
  %segment = getelementptr %segment, ptr %segments, i64 %first
  %place = call ptr @segment_place(ptr %rendezvous, ptr %segment)
  store ptr %place, ptr %memory.at
  br label %begin

look:
  %packs = icmp eq i64 %kind, 1
  br i1 %packs, label %pack, label %begin

pack:
  %own = load ptr, ptr %memory.at
  %form.at = getelementptr %exchange, ptr %exchange, i64 0, i32 10
  %form = load i64, ptr %form.at
  store i64 %form, ptr %own
  call void @copy_segments(ptr %exchange, ptr %message, i1 true)
  br label %begin

begin:
  %sends = and i64 %kind, 1
  %isend = getelementptr %functions, ptr %functions, i64 0, i32 0
  %irecv = getelementptr %functions, ptr %functions, i64 0, i32 1
  %is.send = icmp eq i64 %sends, 1
  %function.at = select i1 %is.send, ptr %isend, ptr %irecv
  %function = load ptr, ptr %function.at
  %byte.at = getelementptr %functions, ptr %functions, i64 0, i32 3
  %byte = load i64, ptr %byte.at
  %communicator.at = getelementptr %functions, ptr %functions, i64 0, i32 4
  %communicator = load i64, ptr %communicator.at
  %rank.at = getelementptr %message, ptr %message, i64 0, i32 1
  %rank.wide = load i64, ptr %rank.at
  %rank = trunc i64 %rank.wide to i32
  %tag.at = getelementptr %message, ptr %message, i64 0, i32 2
  %tag.wide = load i64, ptr %tag.at
  %tag = trunc i64 %tag.wide to i32
  %memory = load ptr, ptr %memory.at
  %bytes.at = getelementptr %message, ptr %message, i64 0, i32 4
  %bytes.wide = load i64, ptr %bytes.at
  %bytes = trunc i64 %bytes.wide to i32
  %request = getelementptr %message, ptr %message, i64 0, i32 6
  %status = call i32 %function(ptr %memory, i32 %bytes, i64 %byte, i32 %rank, i32 %tag, i64 %communicator, ptr %request)
  ret i32 %status
}

; Note what a message has brought: the form of its sender's operands, and segments. Return 1 if the forms are equal.
define internal i1 @take_message(ptr %exchange, ptr %message) nounwind {
entry:
  %kind = load i64, ptr %message
  %unpacks = icmp eq i64 %kind, 0
  br i1 %unpacks, label %compare, label %equal

compare:
  %memory.at = getelementptr %message, ptr %message, i64 0, i32 3
  %memory = load ptr, ptr %memory.at
  %theirs = load i64, ptr %memory
  %form.at = getelementptr %exchange, ptr %exchange, i64 0, i32 10
  %form = load i64, ptr %form.at
  %same = icmp eq i64 %theirs, %form
  br i1 %same, label %unpack, label %differ

unpack:
  call void @copy_segments(ptr %exchange, ptr %message, i1 false)
  br label %equal

equal:
  ret i1 true

differ:
  %stand.ins.at = getelementptr %exchange, ptr %exchange, i64 0, i32 9
  %stand.ins = load ptr, ptr %stand.ins.at
  %record.at = getelementptr %stand_in, ptr %stand.ins, i64 0, i32 1
  %record = load ptr, ptr %record.at
  %its.form = getelementptr %participant, ptr %record, i64 0, i32 3
  store i64 %theirs, ptr %its.form
  ret i1 false
}

; Put the stand-ins into the rendezvous, and go to the first round of a step.
define internal void @begin_exchange(ptr %exchange, i32 %step) nounwind {
entry:
  %rendezvous.at = getelementptr %exchange, ptr %exchange, i64 0, i32 1
  %rendezvous = load ptr, ptr %rendezvous.at
  %index = sub i32 %step, 1
  %first.at = getelementptr %exchange, ptr %exchange, i64 0, i32 4, i32 %index, i32 0
  %first = load i64, ptr %first.at
  %round.at = getelementptr %exchange, ptr %exchange, i64 0, i32 2
  store i64 %first, ptr %round.at
  %under.way.at = getelementptr %exchange, ptr %exchange, i64 0, i32 3
  store i64 0, ptr %under.way.at
  %form.at = getelementptr %exchange, ptr %exchange, i64 0, i32 10
  %form = load i64, ptr %form.at
  %count.at = getelementptr %exchange, ptr %exchange, i64 0, i32 8, i32 1
  %count = load i64, ptr %count.at
  %stand.ins.at = getelementptr %exchange, ptr %exchange, i64 0, i32 9
  %stand.ins = load ptr, ptr %stand.ins.at
  br label %next

next:
  %number = phi i64 [ 0, %entry ], [ %number.next, %put ]
  %more = icmp ult i64 %number, %count
  br i1 %more, label %put, label %done

put:
  %position.at = getelementptr %stand_in, ptr %stand.ins, i64 %number, i32 0
  %position = load i64, ptr %position.at
  %record.at = getelementptr %stand_in, ptr %stand.ins, i64 %number, i32 1
  %record = load ptr, ptr %record.at
  %its.form = getelementptr %participant, ptr %record, i64 0, i32 3
  store i64 %form, ptr %its.form
  %slot = getelementptr %rendezvous, ptr %rendezvous, i64 0, i32 7, i64 %position
  store atomic ptr %record, ptr %slot monotonic, align 8
  %number.next = add i64 %number, 1
  br label %next

done:
  ret void
}

; Continue a step. Return 0 if messages are under way, 1 if the step is complete, 2 if an MPI function failed.
; A step is also complete when another process has operands of another form: its other messages never come.
define i32 @hloom_advance(ptr %exchange, i32 %step) nounwind {
entry:
  %flag = alloca i32
  %status = alloca [8 x i64]
  %functions = load ptr, ptr %exchange
  %test.at = getelementptr %functions, ptr %functions, i64 0, i32 2
  %test = load ptr, ptr %test.at
  %index = sub i32 %step, 1
  %last.at = getelementptr %exchange, ptr %exchange, i64 0, i32 4, i32 %index, i32 1
  %last = load i64, ptr %last.at
  %round.at = getelementptr %exchange, ptr %exchange, i64 0, i32 2
  %under.way.at = getelementptr %exchange, ptr %exchange, i64 0, i32 3
  %rounds.at = getelementptr %exchange, ptr %exchange, i64 0, i32 5
  %rounds = load ptr, ptr %rounds.at
  %messages.at = getelementptr %exchange, ptr %exchange, i64 0, i32 6
  %messages = load ptr, ptr %messages.at
  br label %round

round:
  %number = load i64, ptr %round.at
  %over = icmp uge i64 %number, %last
  br i1 %over, label %complete, label %open

open:
  %first.at = getelementptr %span, ptr %rounds, i64 %number, i32 0
  %first = load i64, ptr %first.at
  %end.at = getelementptr %span, ptr %rounds, i64 %number, i32 1
  %end = load i64, ptr %end.at
  %under.way = load i64, ptr %under.way.at
  %begun = icmp ne i64 %under.way, 0
  br i1 %begun, label %look, label %begin

begin:
  %b = phi i64 [ %first, %open ], [ %b.next, %begin.next ]
  %b.more = icmp ult i64 %b, %end
  br i1 %b.more, label %begin.one, label %all.begun

begin.one:
  %b.message = getelementptr %message, ptr %messages, i64 %b
  %b.status = call i32 @begin_message(ptr %exchange, ptr %b.message)
  %b.bad = icmp ne i32 %b.status, 0
  br i1 %b.bad, label %failed, label %begin.next

begin.next:
  %b.next = add i64 %b, 1
  br label %begin

all.begun:
  store i64 1, ptr %under.way.at
  br label %look

look:
  br label %next

next:
  %m = phi i64 [ %first, %look ], [ %m.next, %counted ]
  %left = phi i64 [ 0, %look ], [ %left.next, %counted ]
  %more = icmp ult i64 %m, %end
  br i1 %more, label %ask, label %looked

ask:
  %message = getelementptr %message, ptr %messages, i64 %m
  %complete.at = getelementptr %message, ptr %message, i64 0, i32 7
  %was.complete = load i64, ptr %complete.at
  %known = icmp ne i64 %was.complete, 0
  br i1 %known, label %counted, label %try

try:
  %request = getelementptr %message, ptr %message, i64 0, i32 6
  %t.status = call i32 %test(ptr %request, ptr %flag, ptr %status)
  %t.bad = icmp ne i32 %t.status, 0
  br i1 %t.bad, label %failed, label %tried

tried:
  %came = load i32, ptr %flag
  %is.there = icmp ne i32 %came, 0
  br i1 %is.there, label %take, label %counted

take:
  store i64 1, ptr %complete.at
  %fits = call i1 @take_message(ptr %exchange, ptr %message)
  br i1 %fits, label %counted, label %complete

counted:
  %more.left = phi i64 [ 0, %ask ], [ 1, %tried ], [ 0, %take ]
  %left.next = add i64 %left, %more.left
  %m.next = add i64 %m, 1
  br label %next

looked:
  %none = icmp eq i64 %left, 0
  br i1 %none, label %advance, label %pending

advance:
  %number.next = add i64 %number, 1
  store i64 %number.next, ptr %round.at
  store i64 0, ptr %under.way.at
  br label %round

pending:
  ret i32 0

complete:
  ret i32 1

failed:
  %error = phi i32 [ %b.status, %begin.one ], [ %t.status, %try ]
  %error.wide = sext i32 %error to i64
  %error.at = getelementptr %exchange, ptr %exchange, i64 0, i32 12
  store i64 %error.wide, ptr %error.at
  ret i32 2
}

; Make the exchange of a step for all participants of this process; after a while the host waits, await(number, -1 - step).
; Return 0, or 1 if that failed.
define internal i32 @run_exchange(ptr %exchange, i64 %number, i32 %step) nounwind {
entry:
  %begin = call i64 @hloom_clock()
  %limit = load i64, ptr @exchange_patience
  %eager.at = getelementptr %exchange, ptr %exchange, i64 0, i32 11
  %eager = load i64, ptr %eager.at
  br label %poll

poll:
  %polls = phi i64 [ 0, %entry ], [ %polls.next, %rest ], [ %polls.next, %yield ]
  %state = call i32 @hloom_advance(ptr %exchange, i32 %step)
  switch i32 %state, label %ask [ i32 0, label %consider
                                  i32 1, label %done ]

consider:
  %polls.next = add i64 %polls, 1
  %early = icmp ult i64 %polls, %eager
  br i1 %early, label %rest, label %measure

rest:
  call void @pause()
  br label %poll

measure:
  %now = call i64 @hloom_clock()
  %elapsed = sub i64 %now, %begin
  %long = icmp sgt i64 %elapsed, %limit
  br i1 %long, label %ask, label %yield

yield:
  %r = call i32 @sched_yield()
  br label %poll

ask:
  %step.wide = zext i32 %step to i64
  %code = sub i64 -1, %step.wide
  %status = call i32 @await(i64 %number, i64 %code)
  ret i32 %status

done:
  ret i32 0
}

; Test a request of hloom's own transport, in the place of MPI_Test. A request is a word that holds its state:
; 0 under way, 1 complete, otherwise an error, which is returned.
define i32 @hloom_test_request(ptr %request, ptr %flag, ptr %status) nounwind {
  %state = load atomic i64, ptr %request acquire, align 8
  %is.complete = icmp eq i64 %state, 1
  %came = zext i1 %is.complete to i32
  store i32 %came, ptr %flag
  %is.error = icmp ugt i64 %state, 1
  %narrow = trunc i64 %state to i32
  %code = select i1 %is.error, i32 %narrow, i32 0
  ret i32 %code
}
