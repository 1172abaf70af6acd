; Definitions for the other files that depend on the processor.

declare void @llvm.x86.sse2.pause()

define internal void @pause() nounwind {
  call void @llvm.x86.sse2.pause()
  ret void
}

@futex_call = internal constant i64 202
