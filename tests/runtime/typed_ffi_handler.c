/* Handlers of XLA's typed FFI for test_typed_ffi.py. */
#include <string.h>
#include "xla/ffi/api/c_api.h"

static XLA_FFI_Error* refuse(const XLA_FFI_Api* api, const char* message) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, 0, message, XLA_FFI_Error_Code_OUT_OF_RANGE};
  return api->XLA_FFI_Error_Create(&args);
}

/* y = scale * x; rows by column-major reading; z = name's length, sizes' sum, nested flag */
XLA_FFI_Error* handler(XLA_FFI_CallFrame* frame) {
  const XLA_FFI_Api* api = frame->api;
  if (frame->struct_size != XLA_FFI_CallFrame_STRUCT_SIZE) return refuse(api, "frame");
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return refuse(api, "stage");
  if (api->api_version.major_version != XLA_FFI_API_MAJOR) return refuse(api, "version");
  if (frame->args.size != 1 || frame->rets.size != 2 || frame->attrs.size != 4) return refuse(api, "counts");
  XLA_FFI_Buffer* x = frame->args.args[0];
  XLA_FFI_Buffer *y = frame->rets.rets[0], *z = frame->rets.rets[1];
  if (x->dtype != XLA_FFI_DataType_F32 || z->dtype != XLA_FFI_DataType_S64) return refuse(api, "types");
  if (x->rank != 2 || x->dims[0] != 2 || x->dims[1] != 3) return refuse(api, "dimensions");
  static const char* names[] = {"name", "nested", "scale", "sizes"};
  for (int i = 0; i < 4; ++i)
    if (frame->attrs.names[i]->len != strlen(names[i]) || memcmp(frame->attrs.names[i]->ptr, names[i], strlen(names[i])))
      return refuse(api, "names are not sorted");
  static const int kinds[] = {XLA_FFI_AttrType_STRING, XLA_FFI_AttrType_DICTIONARY, XLA_FFI_AttrType_SCALAR,
                              XLA_FFI_AttrType_ARRAY};
  for (int i = 0; i < 4; ++i)
    if ((int)frame->attrs.types[i] != kinds[i]) return refuse(api, "kinds");
  XLA_FFI_ByteSpan* name = frame->attrs.attrs[0];
  XLA_FFI_Attrs* nested = frame->attrs.attrs[1];
  XLA_FFI_Scalar* scale = frame->attrs.attrs[2];
  XLA_FFI_Array* sizes = frame->attrs.attrs[3];
  if (scale->dtype != XLA_FFI_DataType_F32 || sizes->dtype != XLA_FFI_DataType_S64) return refuse(api, "attributes");
  XLA_FFI_DeviceMemory_Allocate_Args room = {XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE, 0, frame->ctx, 24, 64, 0};
  XLA_FFI_Error* error = api->XLA_FFI_DeviceMemory_Allocate(&room);
  if (error) return error;
  if ((size_t)room.data % 64) return refuse(api, "alignment");
  memcpy(room.data, x->data, 24);
  for (int i = 0; i < 6; ++i) ((float*)y->data)[i] = *(float*)scale->value * ((float*)room.data)[i] + i;
  XLA_FFI_DeviceMemory_Free_Args done = {XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE, 0, frame->ctx, 24, room.data};
  api->XLA_FFI_DeviceMemory_Free(&done);
  if (((float*)x->data)[0] < 0) return refuse(api, "a negative first element");
  long long* out = z->data;
  out[0] = name->len;
  out[1] = 0;
  for (size_t i = 0; i < sizes->size; ++i) out[1] += ((long long*)sizes->data)[i];
  out[2] = *(char*)((XLA_FFI_Scalar*)nested->attrs[0])->value;
  return 0;
}

XLA_FFI_Error* stream(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Stream_Get_Args args = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, 0, frame->ctx, 0};
  return frame->api->XLA_FFI_Stream_Get(&args);
}

XLA_FFI_Error* later(XLA_FFI_CallFrame* frame) {
  frame->future = (XLA_FFI_Future*)frame;
  return 0;
}
