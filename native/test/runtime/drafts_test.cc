#include "runtime/drafts/drafts.h"

#include "test/runtime/engines.h"

namespace continuo::test::drafts_test {

namespace {

std::vector<int32_t> letters(std::string_view text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<int32_t>& tokens) { return {tokens.begin(), tokens.end()}; }

std::vector<int32_t> proposed(Drafts& drafts, const Context& context, int32_t token, size_t most) {
  const Item item{};
  const Drawing drawing{&context, token, most, item.sampling, item.shaping, item.allowed, item.end_tokens};
  return drafts.propose({&drawing, 1}, {128, 128}).front();
}

Past::Match match(std::string_view read, char token, size_t most) {
  Past past;
  past.append(letters(read));
  return past.match(token, most);
}

}  // namespace

TEST("drafts: what followed the longest place that reads like the end, and of equal ones the last") {
  const auto longest = match("the cat sat; a cat ran; the cat sat down. but the ca", 't', 5);
  CHECK(text_of(longest.tokens) == " sat ");
  CHECK(longest.length == std::string_view(" the cat").size());
  CHECK(text_of(match("abcd1 abcd2 ab", 'c', 2).tokens) == "d2");
}

TEST("drafts: one token alike is no match, two are, and a new token has none") {
  CHECK(text_of(match("ab1 a", 'b', 1).tokens) == "1");
  CHECK(match("xyz ab", 'z', 4).length == 0);
  CHECK(match("the cat", '!', 4).tokens.empty());
  CHECK(match("", 'a', 4).tokens.empty());
}

TEST("drafts: a place near the end is followed by what it repeats") {
  CHECK(text_of(match("0ab0ab0a", 'b', 7).tokens) == "0ab0ab0");
  CHECK(text_of(match("aaaaaaaa", 'a', 5).tokens) == "aaaaa");
}

TEST("drafts: a past finds what it read after each of its parts, and forgets what is far back") {
  test::Random random(3);
  Past past;
  const auto far = test::random_tokens(random, 40, 50'000);
  past.append(far);
  const auto near = test::random_tokens(random, 3 * Past::most_past, 50'000);
  for (size_t at = 0; at < near.size(); at += 5000)
    past.append(std::span(near).subspan(at, std::min<size_t>(5000, near.size() - at)));
  const auto found = [&](const std::vector<int32_t>& tokens, size_t from) {
    Past copy = past;
    copy.append(std::span(tokens).subspan(from, 10));
    const auto [length, next] = copy.match(tokens[from + 10], 20);
    return length >= 11 && std::equal(next.begin(), next.end(), tokens.begin() + static_cast<ptrdiff_t>(from) + 11);
  };
  CHECK(!found(far, 0));
  for (const size_t back : {100, 5000, 32'000}) CHECK(found(near, near.size() - back));
  CHECK(past.bytes() < 16 * 2 * Past::most_past * sizeof(int32_t));
}

TEST("drafts: without a match there is a guess all the same, where every guess is wanted") {
  Past past;
  CHECK(text_of(past.any('a', 3)) == "aaa");
  past.append(letters("xaby"));
  CHECK(text_of(past.any('a', 9)) == "by" && text_of(past.any('a', 1)) == "b");
  CHECK(text_of(past.any('y', 2)) == "yy");
}

TEST("drafts: as many as pay by what was kept and by the time of a step; wrong ones end, right ones come back") {
  auto opened = test::open(test::small_model(11, 40, 48, 3, Dtype::bf16), 1);
  Context context(opened.model);
  Drafts drafts;
  drafts.set({8, true});
  const auto feed = [&](std::vector<int32_t> tokens) {
    context.head.pulse += tokens.size();
    drafts.fed(context, tokens);
  };
  const auto guesses = [&] {
    drafts.begin(1, 0);
    return proposed(drafts, context, 5, 8).size();
  };
  for (int i = 0; i < 4; ++i) feed({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  feed({1, 2, 3, 4});
  // A row costs a tenth of a step.
  for (int i = 0; i < 200; ++i) drafts.stepped(1 + i % 9, 1 + i % 9, 1e-3 * (1 + 0.1 * (1 + i % 9)));
  CHECK(guesses() > 0);
  const auto draw = [&](bool right) {
    const size_t made = guesses();
    drafts.judged(context, made, right ? made : 0);
    return made;
  };
  for (int i = 0; i < 5000; ++i) (void)draw(false);
  size_t many = 0;
  for (int i = 0; i < 64; ++i) many += draw(false) > 0;
  CHECK(many <= 1);
  for (int i = 0; i < 5000; ++i) (void)draw(true);
  CHECK(guesses() == 8);
  // Beside many others, whose rows fill the step, even these are not worth it.
  for (int i = 0; i < 300; ++i) drafts.stepped(40 + i % 9, 40 + i % 9, 1e-3 * (1 + 1.0 * (40 + i % 9)));
  for (int i = 0; i < 20; ++i) {
    const size_t made = guesses();
    drafts.judged(context, made, std::min<size_t>(made, 2));
  }
  drafts.begin(40, 0);
  CHECK(proposed(drafts, context, 5, 8).size() <= 1);
}

TEST("drafts: the past of a context begins anew where the context was restored or fed without it") {
  auto opened = test::open(test::small_model(11, 40, 48, 3, Dtype::bf16), 1);
  Context context(opened.model);
  Drafts drafts;
  drafts.set({8, false});
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 1, 2, 3};
  context.head.pulse = tokens.size();
  drafts.fed(context, tokens);
  CHECK(proposed(drafts, context, 4, 3) == std::vector<int32_t>({1, 2, 3}));
  context.head.pulse += 5;
  CHECK(proposed(drafts, context, 4, 3) == std::vector<int32_t>({4, 4, 4}));
}

}  // namespace continuo::test::drafts_test
