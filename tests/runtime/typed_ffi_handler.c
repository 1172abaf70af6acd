/* Handlers of XLA's typed FFI for test_typed_ffi.py. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
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

/* A call with stages: counts its runs from the attribute "first"; each run prepares the step by which it counts. */
XLA_FFI_TypeId count_type;
XLA_FFI_TypeId step_type;
int counts_alive, steps_alive;
static void free_count(void* count) { --counts_alive; free(count); }
static void free_step(void* step) { --steps_alive; free(step); }
XLA_FFI_TypeInfo count_info = {XLA_FFI_TypeInfo_STRUCT_SIZE, 0, free_count};
XLA_FFI_TypeInfo step_info = {XLA_FFI_TypeInfo_STRUCT_SIZE, 0, free_step};

static int is_question(XLA_FFI_CallFrame* frame) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

static XLA_FFI_Error* set(XLA_FFI_CallFrame* frame, XLA_FFI_TypeId* type, long value) {
  long* state = malloc(sizeof(long));
  *state = value;
  XLA_FFI_State_Set_Args args = {XLA_FFI_State_Set_Args_STRUCT_SIZE, 0, frame->ctx, frame->stage, type, state};
  return frame->api->XLA_FFI_State_Set(&args);
}

XLA_FFI_Error* count_begin(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) {
    ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata->state_type_id = count_type;
    return 0;
  }
  if (frame->stage != XLA_FFI_ExecutionStage_INSTANTIATE) return refuse(frame->api, "stage");
  long first = *(long*)((XLA_FFI_Scalar*)frame->attrs.attrs[0])->value;
  if (first < 0) return refuse(frame->api, "a negative count");
  ++counts_alive;
  return set(frame, &count_type, first);
}

XLA_FFI_Error* count_prepare(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return 0;
  if (frame->stage != XLA_FFI_ExecutionStage_PREPARE) return refuse(frame->api, "stage");
  ++steps_alive;
  return set(frame, &step_type, 1);
}

static XLA_FFI_Error* get(XLA_FFI_CallFrame* frame, XLA_FFI_ExecutionStage stage, XLA_FFI_TypeId* type, long** state) {
  XLA_FFI_State_Get_Args args = {XLA_FFI_State_Get_Args_STRUCT_SIZE, 0, frame->ctx, stage, type, 0};
  XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&args);
  *state = args.state;
  return error;
}

XLA_FFI_Error* count_run(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return 0;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return refuse(frame->api, "stage");
  long *count, *step;
  XLA_FFI_Error* error = get(frame, XLA_FFI_ExecutionStage_INSTANTIATE, &count_type, &count);
  if (!error) error = get(frame, XLA_FFI_ExecutionStage_PREPARE, &step_type, &step);
  if (error) return error;
  *(int*)((XLA_FFI_Buffer*)frame->rets.rets[0])->data = *count;
  *count += *step;
  return 0;
}

/* The same without preparation, as XLA:CPU and hloom run it. */
XLA_FFI_Error* count_plainly(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return 0;
  long* count;
  XLA_FFI_Error* error = get(frame, XLA_FFI_ExecutionStage_INSTANTIATE, &count_type, &count);
  if (error) return error;
  *(int*)((XLA_FFI_Buffer*)frame->rets.rets[0])->data = (*count)++;
  return 0;
}

XLA_FFI_Error* other_type(XLA_FFI_CallFrame* frame) {
  long* count;
  return get(frame, XLA_FFI_ExecutionStage_INSTANTIATE, &step_type, &count);
}

XLA_FFI_Error* begin_twice(XLA_FFI_CallFrame* frame) {
  counts_alive += 2;
  XLA_FFI_Error* error = set(frame, &count_type, 1);
  return error ? error : set(frame, &count_type, 2);
}

XLA_FFI_Error* begin_without_type(XLA_FFI_CallFrame* frame) {
  XLA_FFI_TypeId none = {0};
  return set(frame, &none, 1);
}

/* Answers by a future: another thread writes the result, or an error if the operand is negative. */
struct answer { const XLA_FFI_Api* api; XLA_FFI_Future* future; const int* x; int* y; };

static void* answer(void* given) {
  struct answer* a = given;
  usleep(20000);
  if (*a->x < 0) {
    XLA_FFI_Future_SetError_Args args = {XLA_FFI_Future_SetError_Args_STRUCT_SIZE, 0, a->future,
                                         refuse(a->api, "a late refusal")};
    a->api->XLA_FFI_Future_SetError(&args);
  } else {
    *a->y = 2 * *a->x;
    XLA_FFI_Future_SetAvailable_Args args = {XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE, 0, a->future};
    a->api->XLA_FFI_Future_SetAvailable(&args);
  }
  free(a);
  return 0;
}

XLA_FFI_Error* doubled_later(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return 0;
  XLA_FFI_Future_Create_Args made = {XLA_FFI_Future_Create_Args_STRUCT_SIZE, 0, 0};
  XLA_FFI_Error* error = frame->api->XLA_FFI_Future_Create(&made);
  if (error) return error;
  struct answer* a = malloc(sizeof *a);
  XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
  *a = (struct answer){frame->api, made.future, x->data, y->data};
  pthread_t thread;
  pthread_create(&thread, 0, answer, a);
  pthread_detach(thread);
  frame->future = made.future;
  return 0;
}
