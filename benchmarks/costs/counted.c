/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns valgrind's counting on and off. Outside of valgrind it does nothing.
 */
#include <valgrind/callgrind.h>

void counting(void) { CALLGRIND_TOGGLE_COLLECT; }
