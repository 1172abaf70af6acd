/* Handlers of XLA's typed FFI for test_foreign_functions.py: y = factor * x, and one that fails. */
#include "xla/ffi/api/c_api.h"

/* XLA asks for the version before it registers a handler. */
static int is_question(XLA_FFI_CallFrame* frame) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

XLA_FFI_Error* scale(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return 0;
  XLA_FFI_Buffer *x = frame->args.args[0], *y = frame->rets.rets[0];
  float factor = *(float*)((XLA_FFI_Scalar*)frame->attrs.attrs[0])->value;
  long long count = 1;
  for (long long d = 0; d < x->rank; ++d) count *= x->dims[d];
  for (long long i = 0; i < count; ++i) ((float*)y->data)[i] = factor * ((float*)x->data)[i];
  return 0;
}

XLA_FFI_Error* fail(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return 0;
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, 0, "no good", XLA_FFI_Error_Code_OUT_OF_RANGE};
  return frame->api->XLA_FFI_Error_Create(&args);
}
