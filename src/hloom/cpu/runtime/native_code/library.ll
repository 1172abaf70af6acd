; One thread for the library of linear algebra while programs call it: its own threads would compete with those of the
; program and of other devices. The number is a setting of the whole process; the last of concurrent calls restores it.

@library.lock = internal global i32 0
@library.calls = internal global i32 0
@library.before = internal global i32 0

define internal void @library_lock() nounwind {
entry:
  br label %again
again:
  %held = atomicrmw xchg ptr @library.lock, i32 1 acquire
  %free = icmp eq i32 %held, 0
  br i1 %free, label %done, label %again
done:
  ret void
}

; Begin calls; the functions get and set the number of threads.
define void @hloom_library_enter(ptr %get, ptr %set) nounwind {
entry:
  call void @library_lock()
  %calls = load i32, ptr @library.calls
  %more = add i32 %calls, 1
  store i32 %more, ptr @library.calls
  %first = icmp eq i32 %calls, 0
  br i1 %first, label %read, label %done
read:
  %before = call i32 %get()
  store i32 %before, ptr @library.before
  %one = icmp eq i32 %before, 1
  br i1 %one, label %done, label %change
change:
  call void %set(i32 1)
  br label %done
done:
  store atomic i32 0, ptr @library.lock release, align 4
  ret void
}

; End calls.
define void @hloom_library_leave(ptr %get, ptr %set) nounwind {
entry:
  call void @library_lock()
  %calls = load i32, ptr @library.calls
  %fewer = sub i32 %calls, 1
  store i32 %fewer, ptr @library.calls
  %last = icmp eq i32 %fewer, 0
  br i1 %last, label %read, label %done
read:
  %before = load i32, ptr @library.before
  %one = icmp eq i32 %before, 1
  br i1 %one, label %done, label %change
change:
  call void %set(i32 %before)
  br label %done
done:
  store atomic i32 0, ptr @library.lock release, align 4
  ret void
}

; Forget the calls of threads that a forked child does not have.
define void @hloom_library_reset() nounwind {
  store i32 0, ptr @library.calls
  store atomic i32 0, ptr @library.lock release, align 4
  ret void
}

; For a library without such a setting.
define i32 @hloom_library_get_one() nounwind {
  ret i32 1
}

define void @hloom_library_set_none(i32 %count) nounwind {
  ret void
}
