; Clock for timed programs and polls.

declare i32 @clock_gettime(i32, ptr)

; Return nanoseconds since a fixed moment.
define i64 @hloom_clock() nounwind {
  %time = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %fraction.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %fraction = load i64, ptr %fraction.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %fraction
  ret i64 %now
}
