; Results of an execution, and arguments that are donated to it. `execute.ll` has the types.

; Return the table of a device's results; null if there is none.
define internal ptr @results_of(ptr %args, i64 %device) nounwind {
entry:
  %lists.at = getelementptr ptr, ptr %args, i64 7
  %lists = load ptr, ptr %lists.at
  %none = icmp eq ptr %lists, null
  br i1 %none, label %nothing, label %first

first:
  %results.at = getelementptr ptr, ptr %lists, i64 %device
  %results = load ptr, ptr %results.at
  ret ptr %results

nothing:
  ret ptr null
}

; Return true if the options except an argument from donation.
define internal i1 @is_excepted(ptr %options, i64 %index) nounwind {
entry:
  %none = icmp eq ptr %options, null
  br i1 %none, label %no, label %look

look:
  %kept.at = getelementptr ptr, ptr %options, i64 7
  %kept = load ptr, ptr %kept.at
  %count.at = getelementptr i64, ptr %options, i64 8
  %count = load i64, ptr %count.at
  br label %exception

exception:
  %k = phi i64 [ 0, %look ], [ %k.next, %compare ]
  %all = icmp eq i64 %k, %count
  br i1 %all, label %no, label %compare

compare:
  %except.at = getelementptr i64, ptr %kept, i64 %k
  %except = load i64, ptr %except.at
  %same = icmp eq i64 %except, %index
  %k.next = add i64 %k, 1
  br i1 %same, label %yes, label %exception

yes:
  ret i1 true

no:
  ret i1 false
}

@donations = internal global i64 0

; Return true if a donated argument is another argument as well: donated arguments bear the number of this call; one has
; it already, or more arguments have it than were donated.
define internal i1 @donated_twice(ptr %executable, ptr %args, ptr %inputs) nounwind {
entry:
  %count.at = getelementptr %executable, ptr %executable, i64 0, i32 10
  %count = load i64, ptr %count.at
  %indices.at = getelementptr %executable, ptr %executable, i64 0, i32 11
  %indices = load ptr, ptr %indices.at
  %inputs.at = getelementptr %executable, ptr %executable, i64 0, i32 5
  %arguments = load i64, ptr %inputs.at
  %options.at = getelementptr ptr, ptr %args, i64 3
  %options = load ptr, ptr %options.at
  %before = atomicrmw add ptr @donations, i64 1 monotonic
  %call = add i64 %before, 1
  br label %donation

donation:
  %n = phi i64 [ 0, %entry ], [ %n.next, %marked ]
  %donated = phi i64 [ 0, %entry ], [ %donated.next, %marked ]
  %all = icmp eq i64 %n, %count
  br i1 %all, label %argument, label %look

look:
  %index.at = getelementptr i64, ptr %indices, i64 %n
  %index = load i64, ptr %index.at
  %excepted = call i1 @is_excepted(ptr %options, i64 %index)
  br i1 %excepted, label %marked, label %mark

mark:
  %buffer.at = getelementptr ptr, ptr %inputs, i64 %index
  %buffer = load ptr, ptr %buffer.at
  %donation.at = getelementptr %buffer, ptr %buffer, i64 0, i32 10
  %last = load i64, ptr %donation.at
  store i64 %call, ptr %donation.at
  %marked.before = icmp eq i64 %last, %call
  br i1 %marked.before, label %twice, label %marked

marked:
  %one = phi i64 [ 0, %look ], [ 1, %mark ]
  %donated.next = add i64 %donated, %one
  %n.next = add i64 %n, 1
  br label %donation

argument:
  %i = phi i64 [ 0, %donation ], [ %i.next, %compare ]
  %found = phi i64 [ 0, %donation ], [ %found.next, %compare ]
  %all.seen = icmp eq i64 %i, %arguments
  br i1 %all.seen, label %done, label %compare

compare:
  %argument.at = getelementptr ptr, ptr %inputs, i64 %i
  %its = load ptr, ptr %argument.at
  %its.donation.at = getelementptr %buffer, ptr %its, i64 0, i32 10
  %its.donation = load i64, ptr %its.donation.at
  %same = icmp eq i64 %its.donation, %call
  %more = zext i1 %same to i64
  %found.next = add i64 %found, %more
  %i.next = add i64 %i, 1
  br label %argument

done:
  %also.kept = icmp ne i64 %found, %donated
  ret i1 %also.kept

twice:
  ret i1 true
}

; Mark the donated arguments as deleted, which drops their storage, but for those that the options except.
define internal void @donate(ptr %executable, ptr %args, ptr %inputs) nounwind {
entry:
  %count.at = getelementptr %executable, ptr %executable, i64 0, i32 10
  %count = load i64, ptr %count.at
  %indices.at = getelementptr %executable, ptr %executable, i64 0, i32 11
  %indices = load ptr, ptr %indices.at
  %options.at = getelementptr ptr, ptr %args, i64 3
  %options = load ptr, ptr %options.at
  br label %next

next:
  %n = phi i64 [ 0, %entry ], [ %n.next, %done ]
  %all = icmp eq i64 %n, %count
  br i1 %all, label %ended, label %look

look:
  %index.at = getelementptr i64, ptr %indices, i64 %n
  %index = load i64, ptr %index.at
  %excepted = call i1 @is_excepted(ptr %options, i64 %index)
  br i1 %excepted, label %done, label %delete

delete:
  %buffer.at = getelementptr ptr, ptr %inputs, i64 %index
  %buffer = load ptr, ptr %buffer.at
  call void @pjrt_delete(ptr %buffer)
  br label %done

done:
  %n.next = add i64 %n, 1
  br label %next

ended:
  ret void
}

; Return the storage of a donated input with a reference for a result; null if there is none (-1), if it is excepted from
; donation, or if others have references of it or own its memory.
define internal ptr @given_storage(ptr %args, ptr %inputs, i64 %index) nounwind {
entry:
  %none = icmp slt i64 %index, 0
  br i1 %none, label %no, label %ask

ask:
  %options.at = getelementptr ptr, ptr %args, i64 3
  %options = load ptr, ptr %options.at
  %excepted = call i1 @is_excepted(ptr %options, i64 %index)
  br i1 %excepted, label %no, label %look

look:
  %buffer.at = getelementptr ptr, ptr %inputs, i64 %index
  %buffer = load ptr, ptr %buffer.at
  %storage = load ptr, ptr %buffer
  %references = load atomic i64, ptr %storage acquire, align 8
  %alone = icmp eq i64 %references, 1
  %release.at = getelementptr %storage, ptr %storage, i64 0, i32 2
  %release = load ptr, ptr %release.at
  %inline = icmp eq ptr %release, @release_inline
  %pooled = icmp eq ptr %release, @release_pooled
  %own = or i1 %inline, %pooled
  %free = and i1 %alone, %own
  br i1 %free, label %take, label %no

take:
  call void @keep_storage(ptr %storage)
  ret ptr %storage

no:
  ret ptr null
}

; Make the buffers of the results, with a reference of the event each; write the addresses of their data to %targets.
; Return true if there is memory for all.
define internal i1 @make_results(ptr %executable, ptr %args, ptr %inputs, ptr %results, ptr %targets, ptr %device,
                                 ptr %event) nounwind {
entry:
  %outputs.at = getelementptr %executable, ptr %executable, i64 0, i32 6
  %outputs = load i64, ptr %outputs.at
  %table.at = getelementptr %executable, ptr %executable, i64 0, i32 8
  %table = load ptr, ptr %table.at
  br label %output

output:
  %j = phi i64 [ 0, %entry ], [ %j.next, %make ]
  %all = icmp eq i64 %j, %outputs
  br i1 %all, label %done, label %allocate

allocate:
  %bytes.at = getelementptr %output, ptr %table, i64 %j
  %bytes = load i64, ptr %bytes.at
  %input.at = getelementptr %output, ptr %table, i64 %j, i32 6
  %input = load i64, ptr %input.at
  %given = call ptr @given_storage(ptr %args, ptr %inputs, i64 %input)
  %fresh = icmp eq ptr %given, null
  br i1 %fresh, label %new, label %make

new:
  %made = call ptr @pjrt_storage(i64 %bytes)
  %lacks = icmp eq ptr %made, null
  br i1 %lacks, label %undo, label %make

make:
  %storage = phi ptr [ %given, %allocate ], [ %made, %new ]
  %type.at = getelementptr %output, ptr %table, i64 %j, i32 1
  %type.64 = load i64, ptr %type.at
  %type = trunc i64 %type.64 to i32
  %rank.at = getelementptr %output, ptr %table, i64 %j, i32 2
  %rank = load i64, ptr %rank.at
  %dims.at = getelementptr %output, ptr %table, i64 %j, i32 3
  %dims = load ptr, ptr %dims.at
  %number.at = getelementptr %output, ptr %table, i64 %j, i32 4
  %number = load i64, ptr %number.at
  %memories.at = getelementptr ptr, ptr %device, i64 2
  %memories = load ptr, ptr %memories.at
  %memory.at = getelementptr ptr, ptr %memories, i64 %number
  %memory = load ptr, ptr %memory.at
  %kept = call ptr @kept_event(ptr %event)
  %buffer = call ptr @pjrt_buffer(ptr %storage, ptr %device, ptr %memory, ptr %kept, i64 %bytes, i32 %type, i64 %rank,
                                  ptr %dims)
  %layout.from = getelementptr %output, ptr %table, i64 %j, i32 5
  %layout = load ptr, ptr %layout.from
  %layout.to = getelementptr %buffer, ptr %buffer, i64 0, i32 9
  store ptr %layout, ptr %layout.to
  %result.at = getelementptr ptr, ptr %results, i64 %j
  store ptr %buffer, ptr %result.at
  %data.at = getelementptr %storage, ptr %storage, i64 0, i32 1
  %data = load ptr, ptr %data.at
  %target.at = getelementptr ptr, ptr %targets, i64 %j
  store ptr %data, ptr %target.at
  %j.next = add i64 %j, 1
  br label %output

done:
  ret i1 true

undo:
  call void @destroy_results(ptr %results, i64 %j)
  ret i1 false
}

define internal void @destroy_results(ptr %results, i64 %count) nounwind {
entry:
  br label %next

next:
  %n = phi i64 [ 0, %entry ], [ %n.next, %destroy ]
  %all = icmp eq i64 %n, %count
  br i1 %all, label %done, label %destroy

destroy:
  %buffer.at = getelementptr ptr, ptr %results, i64 %n
  %buffer = load ptr, ptr %buffer.at
  call void @pjrt_delete(ptr %buffer)
  %event.at = getelementptr %buffer, ptr %buffer, i64 0, i32 4
  %event = load ptr, ptr %event.at
  call void @pjrt_drop_event(ptr %event)
  call void @free(ptr %buffer)
  store ptr null, ptr %buffer.at
  %n.next = add i64 %n, 1
  br label %next

done:
  ret void
}
