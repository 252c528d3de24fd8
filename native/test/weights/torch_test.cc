#include "test/check.h"
#include "test/weights/containers.h"
#include "weights/pickle.h"
#include "weights/tensor_files.h"
#include "weights/torch_zip.h"

namespace continuo::test::torch_test {

namespace {

const std::vector<PickleTensor> good_tensors{{"w", "FloatStorage", "0", 8, 2, {2, 3}, {3, 1}},
                                             {"tied", "FloatStorage", "0", 8, 0, {8}, {1}},
                                             {"b", "BFloat16Storage", "1", 3, 0, {1, 3}, {7, 1}},
                                             {"empty", "HalfStorage", "2", 0, 0, {0, 5}, {5, 1}},
                                             {"scalar", "DoubleStorage", "3", 1, 0, {}, {}}};

std::vector<ZipEntry> entries_of(const std::string& pickle) {
  ImageBytes floats;
  for (int i = 0; i < 8; ++i) floats.number<float>(static_cast<float>(i));
  return {{"m/data.pkl", pickle, 3},
          {"m/byteorder", "little", 5},
          {"m/data/0", floats.string(), 40},
          {"m/data/1", std::string(6, '\x3F'), 1},
          {"m/data/2", "", 0},
          {"m/data/3", ImageBytes().number<double>(0.5).string(), 0},
          {"m/version", "3\n", 0}};
}

std::vector<std::byte> image(const std::string& pickle, bool wide = false) {
  return zip_image(entries_of(pickle), wide);
}

Result<std::vector<PickledTensor>> pickled(const std::string& text) {
  const auto bytes = ImageBytes().raw(text).bytes();
  return read_pickle(bytes, "x.pth");
}

}  // namespace

TEST("torch: a message names an entry only where its name is UTF-8") {
  const std::vector<ZipEntry> twice{{"m/data.pkl", "", 0}, {"\xFF", "", 0}, {"\xFF", "", 0}};
  CHECK_SAYS(read_torch_zip(zip_image(twice), "x.pth"), "has the entry whose name is not UTF-8 twice");
  const std::vector<ZipEntry> alone{{"\xFF/data.pkl", pickle_of(good_tensors), 0}};
  CHECK_SAYS(read_torch_zip(zip_image(alone), "x.pth"), "has no entry whose name is not UTF-8 for tensor \"w\"");
}

TEST("torch: tensors of an archive, its local headers longer than its directory says, with zip64 and without") {
  for (const bool wide : {false, true}) {
    const auto bytes = image(pickle_of(good_tensors), wide);
    auto tensors = read_torch_zip(bytes, "x.pth");
    CHECK(tensors && tensors->size() == 5);
    for (const auto& tensor : *tensors) {
      if (tensor.name == "w") {
        CHECK(tensor.dtype == "F32" && (tensor.shape == std::vector<uint64_t>{2, 3}));
        CHECK(read_element(tensor.data.data(), Dtype::f32, 0) == 2 &&
              read_element(tensor.data.data(), Dtype::f32, 5) == 7);
        CHECK(tensor.data.data() == bytes.data() + tensor.offset);
      }
      if (tensor.name == "b") CHECK(tensor.dtype == "BF16" && tensor.data.size() == 6);
      if (tensor.name == "empty") CHECK(tensor.dtype == "F16" && tensor.data.empty());
      if (tensor.name == "scalar") CHECK(tensor.dtype == "F64" && tensor.elements() == 1);
    }
  }
}

TEST("torch: a parameter, a memo, and what stands behind a state_dict are read") {
  const std::string tensor = test::pickle_tensor({"", "HalfStorage", "0", 4, 0, {4}, {1}});
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n(" + tensor +
                                "\x89"
                                "ccollections\nOrderedDict\n)RtR";
  auto found = pickled(
      "\x80\x02"
      "ccollections\nOrderedDict\n)Rq\x05" +
      pickle_text("a") + parameter + "q\x06s(" + pickle_text("b") + "h\x06u}" + pickle_text("_metadata") + "}sb.");
  CHECK(found && found->size() == 2);
  CHECK((*found)[0].name == "a" && (*found)[1].name == "b" && (*found)[1].dtype == std::string("F16"));
}

TEST("torch: buffers of whole numbers and booleans stand beside the weights") {
  const auto found = pickled(pickle_of({{"mask", "BoolStorage", "0", 6, 0, {1, 2, 3}, {6, 3, 1}},
                                        {"bytes", "ByteStorage", "1", 4, 0, {4}, {1}},
                                        {"small", "CharStorage", "2", 1, 0, {}, {}},
                                        {"short", "ShortStorage", "3", 2, 0, {2}, {1}},
                                        {"whole", "IntStorage", "4", 2, 0, {2}, {1}},
                                        {"long", "LongStorage", "5", 2, 1, {1}, {1}}}));
  CHECK(found && found->size() == 6);
  std::string dtypes;
  for (const auto& tensor : *found) dtypes += tensor.dtype + std::to_string(tensor.number_bytes) + " ";
  CHECK(dtypes == "BOOL1 U81 I81 I162 I324 I648 ");
}

TEST("torch: a pickle that would run code is refused by name, and so is every other false one") {
  CHECK_SAYS(pickled("\x80\x02"
                     "cos\nsystem\n(" +
                     pickle_text("rm -rf ~") + "tR."),
             "wants to run the Python code os.system");
  CHECK_SAYS(pickled("\x80\x02"
                     "cbuiltins\neval\n."),
             "builtins.eval");
  CHECK_SAYS(pickled("\x80\x02"
                     "ctorch\nComplexFloatStorage\n."),
             "tensors of ComplexFloatStorage");
  CHECK_SAYS(pickled("\x80\x02"
                     "i"),
             "the pickle opcode 105");
  CHECK_SAYS(pickled("\x80\x04\x95"), "the pickle opcode 149");
  CHECK_SAYS(pickled("\x80\x01"), "pickle protocol 1");
  CHECK_SAYS(pickled("\x80"), "ends inside");
  CHECK_SAYS(pickled(""), "without an end");
  CHECK_SAYS(pickled("c"), "names nothing");
  CHECK_SAYS(pickled("K\x01."), "a whole number, expected a dict");
  CHECK_SAYS(pickled("}}."), "several values");
  CHECK_SAYS(pickled("}. "), "behind the end");
  CHECK_SAYS(pickled("t"), "a tuple");
  CHECK_SAYS(pickled("}K\x01s"), "SETITEM");
  CHECK_SAYS(pickled("]K\x01K\x02s"), "SETITEM");
  CHECK_SAYS(pickled("h\x01"), "a memo that is not there");
  CHECK_SAYS(pickled("q\x01"), "a memo");
  CHECK_SAYS(pickled("NQ"), "BINPERSID");
  CHECK_SAYS(pickled("N)R"), "REDUCE");
  CHECK_SAYS(pickled("\x8a\x09"
                     "123456789"),
             "a number of 9 bytes");
  CHECK_SAYS(pickled("X\xFF\xFF\xFF\xFF"), "ends inside");
  CHECK_SAYS(pickled("}" + pickle_text("a") + "K\x01s."), "holds a whole number under \"a\"");
  CHECK_SAYS(pickled("}K\x01" + test::pickle_tensor(good_tensors[0]) + "s."), "for the name of a tensor");
  const auto with = [](PickleTensor tensor) { return pickled(pickle_of({std::move(tensor)})); };
  CHECK_SAYS(with({"w", "FloatStorage", "0", 8, 0, {2, 3}, {1, 2}}), "the strides [1, 2], expected a dense row-major");
  CHECK_SAYS(with({"w", "FloatStorage", "0", 8, 3, {2, 3}, {3, 1}}), "from number 3 of a storage of 8");
  CHECK_SAYS(with({"w", "FloatStorage", "0", 8, 0, {2, 3}, {1}}), "_rebuild_tensor_v2");
  CHECK_SAYS(with({"w", "FloatStorage", "0", 8, -1, {2}, {1}}), "_rebuild_tensor_v2");
  CHECK_SAYS(with({"w", "FloatStorage", "0", -8, 0, {2}, {1}}), "BINPERSID");
  CHECK_SAYS(pickled(pickle_of({good_tensors[0], good_tensors[0]})), "\"w\" twice");
  CHECK_SAYS(pickled("}(" + std::string(max_pickle_values, 'N') + "u."), "more than 1048576 values");
  CHECK_SAYS(pickled("}q\x01" +
                     [] {
                       std::string out;
                       for (size_t i = 0; i < max_pickle_values; ++i) out += "h\x01";
                       return out;
                     }()),
             "piles up");
}

TEST("torch: every kind of false archive is refused with a sentence") {
  const auto refused = [](std::vector<ZipEntry> entries) { return read_torch_zip(zip_image(entries), "x.pth"); };
  const auto good = entries_of(pickle_of(good_tensors));
  auto entries = good;
  entries[0].method = 8;
  CHECK_SAYS(refused(entries), "compressed (method 8)");
  entries = good;
  entries[2].flags = 1;
  CHECK_SAYS(refused(entries), "encrypted");
  entries = good;
  entries[1].data = "big";
  CHECK_SAYS(refused(entries), "big-endian");
  entries = good;
  entries.erase(entries.begin() + 2);
  CHECK_SAYS(refused(entries), "no entry \"m/data/0\" for tensor \"w\"");
  entries = good;
  entries[2].data.resize(28);
  CHECK_SAYS(refused(entries), "in a storage of 8 numbers, but \"0\" has 28 bytes");
  entries = good;
  entries.push_back(entries[3]);
  CHECK_SAYS(refused(entries), "\"m/data/1\" twice");
  entries = good;
  entries[6].name = "n/data.pkl";
  CHECK_SAYS(refused(entries), "more than one");
  CHECK_SAYS(refused({{"m/data/0", "1234"}}), "no entry");
  std::vector<PickleTensor> many;
  for (int i = 0; i < 200; ++i) many.push_back({"t" + std::to_string(i), "FloatStorage", "0", 1000, 0, {1000}, {1}});
  entries = entries_of(pickle_of(many));
  entries[2].data.resize(4000);
  CHECK_SAYS(refused(entries), "share so much");
  auto bytes = image(pickle_of(good_tensors));
  bytes.resize(bytes.size() - 30);
  CHECK_SAYS(read_torch_zip(bytes, "x.pth"), "no directory at its end");
  CHECK_SAYS(read_torch_zip({}, "x.pth"), "0 bytes");
  const auto old = ImageBytes().raw("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.").bytes();
  CHECK_SAYS(read_tensor_file(old, "x.pth"), "before 1.6");
}

TEST("torch: mutations of a good archive never read outside it") {
  test::Random random(4);
  for (const bool wide : {false, true}) {
    const auto good = image(pickle_of(good_tensors), wide);
    for (int i = 0; i < 20000; ++i) {
      auto hurt = good;
      for (size_t n = 1 + random.below(4); n > 0; --n)
        hurt[random.below(hurt.size())] = static_cast<std::byte>(random.next());
      if (random.below(4) == 0) hurt.resize(random.below(hurt.size() + 1));
      auto file = read_tensor_file(hurt, "x");
      if (!file) continue;
      for (const auto& tensor : file->tensors) {
        volatile unsigned sum = 0;
        for (const auto byte : tensor.data) sum = sum + std::to_integer<unsigned>(byte);
      }
    }
  }
}

}  // namespace continuo::test::torch_test
