; The extension for layouts, as far as every transfer asks for it. The handle of a layout begins with its text, the
; text's length, and the order of dimensions, minor to major.

@layouts = internal global ptr null

; Set the table of the handles of layouts, by rank.
define void @pjrt_set_layouts(ptr %table) nounwind {
  store ptr %table, ptr @layouts
  ret void
}

define internal ptr @row_major(i64 %rank) nounwind {
  %table = load ptr, ptr @layouts
  %layout.at = getelementptr ptr, ptr %table, i64 %rank
  %layout = load ptr, ptr %layout.at
  ret ptr %layout
}

; Return the layout of a buffer.
define internal ptr @layout_of(ptr %buffer) nounwind {
  %own.at = getelementptr %buffer, ptr %buffer, i64 0, i32 9
  %own = load ptr, ptr %own.at
  %plain = icmp eq ptr %own, null
  %rank.at = getelementptr %buffer, ptr %buffer, i64 0, i32 6
  %rank = load i64, ptr %rank.at
  %default = call ptr @row_major(i64 %rank)
  %layout = select i1 %plain, ptr %default, ptr %own
  ret ptr %layout
}

; Words of the arguments: 2 buffer, 3 layout.
define ptr @PJRT_Layouts_PJRT_Buffer_MemoryLayout(ptr %args) nounwind {
  %buffer.at = getelementptr ptr, ptr %args, i64 2
  %buffer = load ptr, ptr %buffer.at
  %layout = call ptr @layout_of(ptr %buffer)
  %out = getelementptr ptr, ptr %args, i64 3
  store ptr %layout, ptr %out
  ret ptr null
}

; Words of the arguments: 2 client, 3 type, 4 dimensions, 5 their number, 6 layout.
define ptr @PJRT_Layouts_PJRT_Client_GetDefaultLayout(ptr %args) nounwind {
  %rank.at = getelementptr i64, ptr %args, i64 5
  %rank = load i64, ptr %rank.at
  %layout = call ptr @row_major(i64 %rank)
  %out = getelementptr ptr, ptr %args, i64 6
  store ptr %layout, ptr %out
  ret ptr null
}

define ptr @PJRT_Layouts_PJRT_Topology_GetDefaultLayout(ptr %args) nounwind {
  %error = call ptr @PJRT_Layouts_PJRT_Client_GetDefaultLayout(ptr %args)
  ret ptr %error
}

; Words of the arguments: 2 layout, 3 text, 4 its length, 5 what the deleter gets, 6 deleter.
define ptr @PJRT_Layouts_MemoryLayout_Serialize(ptr %args) nounwind {
  %layout.at = getelementptr ptr, ptr %args, i64 2
  %layout = load ptr, ptr %layout.at
  %text = load ptr, ptr %layout
  %size.at = getelementptr i64, ptr %layout, i64 1
  %size = load i64, ptr %size.at
  %text.out = getelementptr ptr, ptr %args, i64 3
  store ptr %text, ptr %text.out
  %size.out = getelementptr i64, ptr %args, i64 4
  store i64 %size, ptr %size.out
  %owner.out = getelementptr ptr, ptr %args, i64 5
  store ptr %layout, ptr %owner.out
  %deleter.out = getelementptr ptr, ptr %args, i64 6
  store ptr @pjrt_nothing, ptr %deleter.out
  ret ptr null
}

; Layouts live as long as the process.
define ptr @PJRT_Layouts_MemoryLayout_Destroy(ptr %args) nounwind {
  ret ptr null
}
