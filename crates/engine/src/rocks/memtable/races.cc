// Writers and readers of one memtable at the same time, for ThreadSanitizer: `make tsan`. RocksDB itself is not instrumented, so
// this drives the memtable without it; what of RocksDB the memtable includes, such as its skip lists, is.

#include "radix_skip_list.cc"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "memory/concurrent_arena.h"
#include "util/coding.h"

namespace {

using ROCKSDB_NAMESPACE::ConcurrentArena;

constexpr int WRITERS = 4;
constexpr int READERS = 3;
constexpr uint32_t KEYS = 600;
constexpr uint64_t WRITES = 8000; // by each writer
constexpr int TABLES = 6;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "the memtable is wrong: %s\n", what);
  std::abort();
}

// By user key, then the latest first; here, so that what it reads is instrumented.
class Comparator : public MemTableRep::KeyComparator {
 public:
  int operator()(const char* one, const char* other) const override {
    return Compare(decode_key(one), decode_key(other));
  }
  int operator()(const char* one, const Slice& other) const override { return Compare(decode_key(one), other); }
  Slice decode_key(const char* entry) const override {
    return Slice(entry + 1, static_cast<unsigned char>(*entry)); // keys are so short that their length takes a byte
  }

  static uint64_t NumberOf(const Slice& key) {
    uint64_t number = 0;
    for (int i = 7; i >= 0; i--) number = number << 8 | static_cast<unsigned char>(key[key.size() - 8 + i]);
    return number >> 8;
  }

 private:
  static int Compare(const Slice& one, const Slice& other) {
    const size_t length = std::min(one.size(), other.size()) - 8;
    for (size_t i = 0; i < length; i++) {
      const int difference = static_cast<unsigned char>(one[i]) - static_cast<unsigned char>(other[i]);
      if (difference != 0) return difference;
    }
    if (one.size() != other.size()) return one.size() < other.size() ? -1 : 1;
    const uint64_t number = NumberOf(one), latest = NumberOf(other);
    return number == latest ? 0 : number > latest ? -1 : 1;
  }
};

// Some share all of their first bits, some the partition, some nothing; some are shorter than what the tree looks at.
std::string UserKey(uint32_t key) {
  if (key % 50 == 0) return std::string("\0\0", 2) + static_cast<char>(key / 50);
  std::string user_key("\1\0", 2);
  user_key += static_cast<char>(key % 3);
  const uint64_t hash = key % 5 == 0 ? 7 : key * 0x9e3779b97f4a7c15ull;
  for (int shift = 56; shift >= 0; shift -= 8) user_key += static_cast<char>(hash >> shift);
  return user_key + std::to_string(key);
}

// An entry's value is its number once more.
void Insert(RadixSkipList& table, const std::string& user_key, uint64_t number) {
  std::string entry;
  ROCKSDB_NAMESPACE::PutVarint32(&entry, static_cast<uint32_t>(user_key.size() + 8));
  entry += user_key;
  ROCKSDB_NAMESPACE::PutFixed64(&entry, number << 8 | 1);
  ROCKSDB_NAMESPACE::PutVarint32(&entry, 8);
  ROCKSDB_NAMESPACE::PutFixed64(&entry, number);
  char* place;
  KeyHandle handle = table.Allocate(entry.size(), &place);
  std::memcpy(place, entry.data(), entry.size());
  Require(table.InsertKeyConcurrently(handle), "an entry was there already");
}

uint64_t ValueOf(const char* entry) {
  const Slice key = ROCKSDB_NAMESPACE::GetLengthPrefixedSlice(entry);
  const Slice value = ROCKSDB_NAMESPACE::GetLengthPrefixedSlice(key.data() + key.size());
  const uint64_t number = ROCKSDB_NAMESPACE::DecodeFixed64(value.data());
  Require(number == Comparator::NumberOf(key), "an entry is not what was inserted");
  return number;
}

// The latest number under a key; zero if there is none.
uint64_t Latest(RadixSkipList& table, const std::string& user_key) {
  struct Wanted {
    const std::string& user_key;
    uint64_t number;
  } wanted{user_key, 0};
  const LookupKey lookup(user_key, ROCKSDB_NAMESPACE::kMaxSequenceNumber);
  table.Get(lookup, &wanted, [](void* args, const char* entry) {
    auto* wanted = static_cast<Wanted*>(args);
    const Slice found = ROCKSDB_NAMESPACE::ExtractUserKey(ROCKSDB_NAMESPACE::GetLengthPrefixedSlice(entry));
    if (found == Slice(wanted->user_key)) wanted->number = ValueOf(entry);
    return false;
  });
  return wanted.number;
}

// Goes through all entries, forwards or backwards; how many there are.
uint64_t Walk(RadixSkipList& table, const Comparator& compare, bool forwards) {
  std::unique_ptr<MemTableRep::Iterator> at(table.GetIterator(nullptr));
  uint64_t count = 0;
  const char* last = nullptr;
  for (forwards ? at->SeekToFirst() : at->SeekToLast(); at->Valid(); forwards ? at->Next() : at->Prev()) {
    const int order = last == nullptr ? -1 : compare(last, at->key());
    Require(last == nullptr || (forwards ? order < 0 : order > 0), "entries are out of order");
    ValueOf(at->key());
    last = at->key();
    count++;
  }
  return count;
}

void Run() {
  const Comparator compare;
  ConcurrentArena arena;
  auto bits = std::make_shared<LeafBits>();
  RadixSkipList table(compare, &arena, bits);
  std::vector<std::string> keys;
  for (uint32_t key = 0; key < KEYS; key++) keys.push_back(UserKey(key));
  std::vector<std::atomic<uint64_t>> written(KEYS);
  std::atomic<uint64_t> numbers{0};
  std::atomic<int> writing{WRITERS};

  std::vector<std::thread> threads;
  for (int writer = 0; writer < WRITERS; writer++) {
    threads.emplace_back([&, writer] {
      for (uint64_t i = 0; i < WRITES; i++) {
        const uint32_t key = static_cast<uint32_t>((i * 7 + writer * 131) % KEYS);
        const uint64_t number = numbers.fetch_add(1, std::memory_order_relaxed) + 1;
        Insert(table, keys[key], number);
        uint64_t before = written[key].load(std::memory_order_relaxed);
        while (before < number && !written[key].compare_exchange_weak(before, number, std::memory_order_release)) {
        }
      }
      writing.fetch_sub(1);
    });
  }
  for (int reader = 0; reader < READERS; reader++) {
    threads.emplace_back([&, reader] {
      for (uint32_t round = reader; writing.load() > 0; round++) {
        const uint32_t key = round * 11 % KEYS;
        // Relaxed: the memtable itself has to order what is in it; that it is found is checked when all is written.
        const bool was_there = written[key].load(std::memory_order_relaxed) > 0;
        const uint64_t found = Latest(table, keys[key]);
        Require(!was_there || found > 0, "what was inserted is not found");
        if (round % 97 == 0) Walk(table, compare, round % 2 == 0);
        if (round % 13 == 0) {
          std::unique_ptr<MemTableRep::Iterator> at(table.GetIterator(nullptr));
          std::string internal_key = keys[key];
          ROCKSDB_NAMESPACE::PutFixed64(&internal_key, 1);
          at->SeekForPrev(internal_key, nullptr);
          if (at->Valid()) ValueOf(at->key());
          at->Seek(internal_key, nullptr);
          if (at->Valid()) ValueOf(at->key());
          table.ApproximateNumEntries(internal_key, keys[KEYS - 1] + std::string(8, '\0'));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  table.MarkReadOnly();
  for (uint32_t key = 0; key < KEYS; key++) {
    Require(Latest(table, keys[key]) == written[key].load(), "the latest entry is not found");
  }
  Require(Walk(table, compare, true) == WRITERS * WRITES, "entries are missing");
  Require(Walk(table, compare, false) == WRITERS * WRITES, "entries are missing backwards");
}

}  // namespace

int main() {
  for (int table = 0; table < TABLES; table++) Run();
  std::printf("%d memtables, each by %d writers and %d readers: no data race\n", TABLES, WRITERS, READERS);
}
