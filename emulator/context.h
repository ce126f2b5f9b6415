// Where a fiber goes on: a stack, and what registers hold.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)

// The system's swapcontext asks the kernel about signals at each turn, which takes most of a run.
extern "C" void fibers_change(void** from, void* to);
asm(R"(
.pushsection .text
.p2align 4
.type fibers_change, @function
fibers_change:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fibers_change, .-fibers_change
.popsection
)");

namespace fibers {

class Context {
 public:
  /// To begin with `start`, which never returns.
  void prepare(char* stack, size_t bytes, void (*start)()) {
    lowest_ = stack;
    const uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15};
    auto** word = reinterpret_cast<void**>(top);
    *--word = nullptr;  // what would be returned to
    *--word = reinterpret_cast<void*>(start);
    for (int saved = 0; saved < 6; ++saved) *--word = nullptr;
    place_ = word;
  }

  static void change(Context& from, Context& to) { fibers_change(&from.place_, to.place_); }

  /// Whether the stack had room when the fiber was left.
  bool fits() const { return place_ > lowest_; }

 private:
  void* place_ = nullptr;
  void* lowest_ = nullptr;
};

}  // namespace fibers

#else

#include <ucontext.h>

namespace fibers {

class Context {
 public:
  void prepare(char* stack, size_t bytes, void (*start)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = bytes;
    makecontext(&context_, start, 0);
  }

  static void change(Context& from, Context& to) { swapcontext(&from.context_, &to.context_); }

  bool fits() const { return true; }

 private:
  ucontext_t context_;
};

}  // namespace fibers

#endif
