; Definitions for the other files that depend on the processor.

declare void @llvm.aarch64.hint(i32)

define internal void @pause() nounwind {
  call void @llvm.aarch64.hint(i32 1) ; yield
  ret void
}

@futex_call = internal constant i64 98
