/* SPDX-License-Identifier: Apache-2.0
 *
 * Hooks of gradients as functions of Python itself. A hook runs once a parameter and step, inside backward, when what
 * it needs has left the caches: so it does little, and touches little.
 *
 *   new_flight(exchange, current_task, begin)    what is under way for one optimizer
 *   open_flight(flight, whether)                 whether hooks may take the short way
 *   new_gradient(flight, general)                (gradient, hook) of one parameter; `hook(param)` is for torch
 *   prepare_gradient(gradient, request, number, bytes, enough)
 *   send_gradients(flight)                       how many are under way
 *   finish_gradients(flight)                     waits for all of them, and forgets them
 *   take_gradients(flight)                       [(number, gradient tensor, its memory, handle), ...] of those that
 * were sent, and forgets all
 *
 * A hook asks torch where `param.grad` lies, and puts it on the list of those that are ready. Once `enough` bytes are,
 * they are submitted, all at once, and the engine's thread is woken; the rest when somebody waits. What is not the
 * usual case goes to `general(param)`: nothing was taken then.
 *
 * Both ends own a gradient: torch the hook, the optimizer what new_gradient returned beside it. When the optimizer lets
 * go, the hook goes the general way, which knows what to do.
 *
 * exchange      torch.Tensor.__dlpack_c_exchange_api__
 * current_task  the number of the backward that runs now
 * begin         called by the first hook of a backward
 */
#ifndef HOROVOD_GLUE_PYTHON_GRADIENTS_H_
#define HOROVOD_GLUE_PYTHON_GRADIENTS_H_

#include "glue/python/python_abi.h"

namespace hvd::python {

Object* new_flight(Object*, Object* const* arguments, ssize_t n);
Object* open_flight(Object*, Object* const* arguments, ssize_t n);
Object* new_gradient(Object*, Object* const* arguments, ssize_t n);
Object* prepare_gradient(Object*, Object* const* arguments, ssize_t n);
Object* send_gradients(Object*, Object* const* arguments, ssize_t n);
Object* finish_gradients(Object*, Object* const* arguments, ssize_t n);
Object* take_gradients(Object*, Object* const* arguments, ssize_t n);

}  // namespace hvd::python

#endif /* HOROVOD_GLUE_PYTHON_GRADIENTS_H_ */
