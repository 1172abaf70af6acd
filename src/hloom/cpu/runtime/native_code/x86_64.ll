; What the other files need of the processor and of its Linux.

declare void @llvm.x86.sse2.pause()

define internal void @pause() nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

@futex_call = internal constant i64 202
