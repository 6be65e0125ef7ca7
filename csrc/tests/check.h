// SPDX-License-Identifier: Apache-2.0
//
// A test framework in one header: TEST(name) { CHECK(...); CHECK_EQ(...); }, and a main that runs them all.
// A failing check prints where and what (with the text put by `Case`, if any) and the test goes on; after
// kMaxShown failures it keeps quiet and counts.
#ifndef HOROVOD_TESTS_CHECK_H_
#define HOROVOD_TESTS_CHECK_H_

#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace hvd::testing {

constexpr int kMaxShown = 20;

struct State {
  std::vector<std::pair<std::string, std::function<void()>>> tests;
  std::vector<std::string> cases;
  long failures = 0;
  long checks = 0;
};

inline State& state() {
  static State s;
  return s;
}

// Describes the point of a grid the checks below it belong to, while it lives.
class Case {
 public:
  template <class... Parts>
  explicit Case(const Parts&... parts) {
    std::ostringstream text;
    ((text << parts << ' '), ...);
    state().cases.push_back(text.str());
  }
  ~Case() { state().cases.pop_back(); }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
};

inline void fail(const char* file, int line, const std::string& what) {
  if (++state().failures > kMaxShown) return;
  std::cerr << file << ':' << line << ": " << what;
  for (const std::string& c : state().cases) std::cerr << " [" << c.substr(0, c.size() - 1) << ']';
  std::cerr << '\n';
}

inline void check(bool ok, const char* file, int line, const char* text) {
  ++state().checks;
  if (!ok) fail(file, line, std::string("failed: ") + text);
}

template <class A, class B>
void check_eq(const A& a, const B& b, const char* file, int line, const char* text) {
  ++state().checks;
  if (a == b) return;
  std::ostringstream what;
  what << "failed: " << text << ": " << a << " != " << b;
  fail(file, line, what.str());
}

struct Register {
  Register(const char* name, std::function<void()> body) { state().tests.emplace_back(name, std::move(body)); }
};

inline int run_all(int argc, char** argv) {
  State& s = state();
  for (auto& [name, body] : s.tests) {
    if (argc > 1 && name.find(argv[1]) == std::string::npos) continue;
    const long failed = s.failures, checked = s.checks;
    body();
    std::cout << (s.failures == failed ? "ok    " : "FAIL  ") << name << " (" << s.checks - checked << " checks)"
              << std::endl;
  }
  if (s.failures) std::cerr << s.failures << " of " << s.checks << " checks failed\n";
  return s.failures || !s.checks ? 1 : 0;
}

}  // namespace hvd::testing

#define TEST(name)                                                           \
  static void test_##name();                                                 \
  static const ::hvd::testing::Register register_##name(#name, test_##name); \
  static void test_##name()
#define CHECK(condition) ::hvd::testing::check(condition, __FILE__, __LINE__, #condition)
#define CHECK_EQ(a, b) ::hvd::testing::check_eq(a, b, __FILE__, __LINE__, #a " == " #b)

int main(int argc, char** argv) { return ::hvd::testing::run_all(argc, argv); }

#endif  // HOROVOD_TESTS_CHECK_H_
