// A memtable that finds a key's place by its first bits: a radix tree over them, with a skip list of a few entries in each slot
// of its leaves. docs/decisions/0019-memtable.md has the reasoning.
//
// RocksDB's own is one skip list. To find a place in it is to compare with some twenty keys, half of which are in no CPU cache.
// Records' keys begin with kind, partition and hash, so their first bits alone lead to where few others are. Keys that
// share these, as all of a hash key do, share a list, which is RocksDB's own and may have any length. Lists follow each other in
// the order of keys.
//
// Nothing here takes a lock: a slot goes from null to what it points to once, and insertion into lists is RocksDB's.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "db/memtable.h"
#include "memory/allocator.h"
#include "memory/arena.h"
#include "memtable/inlineskiplist.h"
#include "rocksdb/memtablerep.h"
#include "rocksdb/utilities/object_registry.h"

namespace {

using ROCKSDB_NAMESPACE::Allocator;
using ROCKSDB_NAMESPACE::Arena;
using ROCKSDB_NAMESPACE::KeyHandle;
using ROCKSDB_NAMESPACE::LookupKey;
using ROCKSDB_NAMESPACE::MemTableRep;
using ROCKSDB_NAMESPACE::MemTableRepFactory;
using ROCKSDB_NAMESPACE::Slice;
using ROCKSDB_NAMESPACE::SliceTransform;
using ROCKSDB_NAMESPACE::Status;

using List = ROCKSDB_NAMESPACE::InlineSkipList<const MemTableRep::KeyComparator&>;
using Slot = std::atomic<void*>;

constexpr char NAME[] = "tessera.RadixSkipList";
// Bytes of a key, kind and partition, that have a level of the tree each. The bits after them have one together.
constexpr int BYTE_LEVELS = 3;
// How many bits those are is chosen for half as many entries in a list at least, and at most as many.
constexpr uint64_t ENTRIES_PER_LIST = 16;
constexpr int FIRST_LEAF_BITS = 8;
constexpr int MOST_LEAF_BITS = 12;
// Of lists, as RocksDB's own have them but for the height, which is 12 there and costs memory in each.
constexpr int LIST_HEIGHT = 8;
constexpr int BRANCHING = 4;

// A tree of slots over addresses, which are the first bits of keys: three nodes of 256 above each other, then a leaf.
class Tree {
 public:
  Tree(const MemTableRep::KeyComparator& compare, Allocator* allocator, int leaf_bits)
      : compare_(compare), allocator_(allocator), leaf_bits_(leaf_bits), root_(NewNode(0)) {}

  // Where a key's list is. Of two keys the lesser has no greater address.
  uint64_t AddressOf(const Slice& user_key) const {
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(bits); i++) {
      bits = bits << 8 | (i < user_key.size() ? static_cast<unsigned char>(user_key[i]) : 0);
    }
    return bits >> (64 - 8 * BYTE_LEVELS - leaf_bits_);
  }

  // The list at an address, or null.
  const List* At(uint64_t address) const {
    const Slot* node = root_;
    for (int level = 0; level < BYTE_LEVELS; level++) {
      node = static_cast<const Slot*>(node[IndexOf(address, level)].load(std::memory_order_acquire));
      if (node == nullptr) return nullptr;
    }
    return static_cast<const List*>(node[IndexOf(address, BYTE_LEVELS)].load(std::memory_order_acquire));
  }

  List* AtOrNew(uint64_t address) {
    Slot* node = root_;
    for (int level = 0; level < BYTE_LEVELS; level++) {
      Slot& slot = node[IndexOf(address, level)];
      void* child = slot.load(std::memory_order_acquire);
      if (child == nullptr) {
        child = Settle(slot, NewNode(level + 1));
        if (level + 1 == BYTE_LEVELS) leaves_.fetch_add(1, std::memory_order_relaxed);
      }
      node = static_cast<Slot*>(child);
    }
    Slot& slot = node[IndexOf(address, BYTE_LEVELS)];
    void* list = slot.load(std::memory_order_acquire);
    if (list == nullptr) {
      list = Settle(slot, new (allocator_->AllocateAligned(sizeof(List))) List(compare_, allocator_, LIST_HEIGHT, BRANCHING));
    }
    return static_cast<List*>(list);
  }

  // The first list at or after an address, which becomes that of the list. Null if there is none.
  const List* FirstFrom(uint64_t* address) const { return First(root_, 0, *address, address); }

  // The last list at or before an address, which becomes that of the list. Null if there is none.
  const List* LastTo(uint64_t* address) const { return Last(root_, 0, *address, address); }

  // Above all addresses.
  uint64_t End() const { return uint64_t{1} << BitsBelow(-1); }

  uint64_t Leaves() const { return leaves_.load(std::memory_order_relaxed); }

 private:
  int BitsBelow(int level) const { return level == BYTE_LEVELS ? 0 : leaf_bits_ + 8 * (BYTE_LEVELS - 1 - level); }
  uint64_t Fan(int level) const { return uint64_t{1} << (level == BYTE_LEVELS ? leaf_bits_ : 8); }
  uint64_t IndexOf(uint64_t address, int level) const { return address >> BitsBelow(level) & (Fan(level) - 1); }

  Slot* NewNode(int level) {
    const uint64_t fan = Fan(level);
    auto* node = reinterpret_cast<Slot*>(allocator_->AllocateAligned(sizeof(Slot) * fan));
    for (uint64_t i = 0; i < fan; i++) new (node + i) Slot(nullptr);
    return node;
  }

  // Puts a child into an empty slot, unless another thread was faster; what is then in it.
  static void* Settle(Slot& slot, void* child) {
    void* there = nullptr;
    return slot.compare_exchange_strong(there, child, std::memory_order_acq_rel) ? child : there;
  }

  // `from` is the rest of an address below `level`, `found` becomes that of the list.
  const List* First(const Slot* node, int level, uint64_t from, uint64_t* found) const {
    const uint64_t unit = uint64_t{1} << BitsBelow(level);
    for (uint64_t i = from / unit; i < Fan(level); i++, from = 0) {
      const void* child = node[i].load(std::memory_order_acquire);
      if (child == nullptr) continue;
      uint64_t rest = 0;
      const auto* list = level == BYTE_LEVELS ? static_cast<const List*>(child)
                                              : First(static_cast<const Slot*>(child), level + 1, from % unit, &rest);
      if (list == nullptr) continue;
      *found = i * unit + rest;
      return list;
    }
    return nullptr;
  }

  const List* Last(const Slot* node, int level, uint64_t to, uint64_t* found) const {
    const uint64_t unit = uint64_t{1} << BitsBelow(level);
    for (uint64_t i = to / unit + 1; i-- > 0; to = unit - 1) {
      const void* child = node[i].load(std::memory_order_acquire);
      if (child == nullptr) continue;
      uint64_t rest = 0;
      const auto* list = level == BYTE_LEVELS ? static_cast<const List*>(child)
                                              : Last(static_cast<const Slot*>(child), level + 1, to % unit, &rest);
      if (list == nullptr) continue;
      *found = i * unit + rest;
      return list;
    }
    return nullptr;
  }

  const MemTableRep::KeyComparator& compare_;
  Allocator* const allocator_;
  const int leaf_bits_;
  Slot* const root_;
  std::atomic<uint64_t> leaves_{0};
};

// The leaf bits of a table's next memtable, from what the ones before it held.
class LeafBits {
 public:
  int Get() const { return bits_.load(std::memory_order_relaxed); }

  // At most one bit less than before: a memtable that was flushed early says little.
  void Learn(uint64_t entries, uint64_t leaves) {
    const uint64_t lists = leaves == 0 ? 0 : entries / leaves / ENTRIES_PER_LIST;
    const int needed = std::min(static_cast<int>(std::bit_width(lists)), MOST_LEAF_BITS);
    bits_.store(std::max(needed, Get() - 1), std::memory_order_relaxed);
  }

 private:
  std::atomic<int> bits_{FIRST_LEAF_BITS};
};

class RadixSkipList : public MemTableRep {
 public:
  RadixSkipList(const KeyComparator& compare, Allocator* allocator, std::shared_ptr<LeafBits> bits)
      : MemTableRep(allocator),
        bits_(std::move(bits)),
        tree_(compare, allocator, bits_->Get()),
        nodes_(compare, allocator, LIST_HEIGHT, BRANCHING) {}

  KeyHandle Allocate(const size_t len, char** buf) override {
    entries_.fetch_add(1, std::memory_order_relaxed);
    *buf = nodes_.AllocateKey(len);
    return *buf;
  }

  bool InsertKeyConcurrently(KeyHandle handle) override {
    const char* key = static_cast<char*>(handle);
    return tree_.AtOrNew(tree_.AddressOf(UserKeyOf(key)))->InsertConcurrently(key);
  }
  void InsertConcurrently(KeyHandle handle) override { InsertKeyConcurrently(handle); }
  bool InsertKey(KeyHandle handle) override { return InsertKeyConcurrently(handle); }
  void Insert(KeyHandle handle) override { InsertKeyConcurrently(handle); }
  bool InsertKeyWithHint(KeyHandle handle, void**) override { return InsertKeyConcurrently(handle); }
  bool InsertKeyWithHintConcurrently(KeyHandle handle, void**) override { return InsertKeyConcurrently(handle); }

  bool Contains(const char* key) const override {
    const List* list = tree_.At(tree_.AddressOf(UserKeyOf(key)));
    return list != nullptr && list->Contains(key);
  }

  void MarkReadOnly() override { bits_->Learn(entries_.load(std::memory_order_relaxed), tree_.Leaves()); }

  void Get(const LookupKey& key, void* args, bool (*visit)(void* args, const char* entry)) override {
    VisitFrom(key.memtable_key().data(), args, visit);
  }

  Status MultiGet(size_t count, const char* const* keys, void** args, bool (*visit)(void* args, const char* entry), bool, bool,
                  const std::function<Status(const char*, bool)>&) override {
    for (size_t i = 0; i < count; i++) VisitFrom(keys[i], args[i], visit);
    return Status::OK();
  }

  uint64_t ApproximateNumEntries(const Slice& start, const Slice& end) override {
    uint64_t count = 0;
    uint64_t address = tree_.AddressOf(ROCKSDB_NAMESPACE::ExtractUserKey(start));
    const uint64_t last = tree_.AddressOf(ROCKSDB_NAMESPACE::ExtractUserKey(end));
    for (const List* list = tree_.FirstFrom(&address); list != nullptr && address <= last; list = tree_.FirstFrom(&address)) {
      count += list->ApproximateNumEntries(start, end);
      address++;
    }
    return count;
  }

  // All memory is the allocator's.
  size_t ApproximateMemoryUsage() override { return 0; }

  MemTableRep::Iterator* GetIterator(Arena* arena) override {
    void* place = arena == nullptr ? operator new(sizeof(Iterator)) : arena->AllocateAligned(sizeof(Iterator));
    return new (place) Iterator(tree_);
  }

 private:
  // Goes through the lists, one after the other.
  class Iterator : public MemTableRep::Iterator {
   public:
    explicit Iterator(const Tree& tree) : tree_(tree), at_(nullptr) {}

    bool Valid() const override { return at_.Valid(); }
    const char* key() const override { return at_.key(); }

    void Next() override {
      at_.Next();
      if (!at_.Valid()) ToFirstFrom(address_ + 1);
    }

    void Prev() override {
      at_.Prev();
      if (!at_.Valid()) ToLastBefore(address_);
    }

    void Seek(const Slice& internal_key, const char* memtable_key) override {
      const char* key = EnterListOf(internal_key, memtable_key);
      if (has_list_) at_.Seek(key);
      if (!at_.Valid()) ToFirstFrom(address_ + 1);
    }

    void SeekForPrev(const Slice& internal_key, const char* memtable_key) override {
      const char* key = EnterListOf(internal_key, memtable_key);
      if (has_list_) at_.SeekForPrev(key);
      if (!at_.Valid()) ToLastBefore(address_);
    }

    void SeekToFirst() override { ToFirstFrom(0); }
    void SeekToLast() override { ToLastBefore(tree_.End()); }

   private:
    void Enter(const List* list, uint64_t address) {
      at_.SetList(list); // and to nowhere in it
      has_list_ = list != nullptr;
      address_ = address;
    }

    // The key as it is in the memtable.
    const char* EnterListOf(const Slice& internal_key, const char* memtable_key) {
      const char* key = memtable_key != nullptr ? memtable_key : ROCKSDB_NAMESPACE::EncodeKey(&encoded_, internal_key);
      const uint64_t address = tree_.AddressOf(UserKeyOf(key));
      Enter(tree_.At(address), address);
      return key;
    }

    // A list whose first entry is being inserted is empty.
    void ToFirstFrom(uint64_t address) {
      do {
        const List* list = tree_.FirstFrom(&address);
        Enter(list, address);
        if (has_list_) at_.SeekToFirst();
        address++;
      } while (has_list_ && !at_.Valid());
    }

    void ToLastBefore(uint64_t end) {
      Enter(nullptr, end);
      while (end > 0 && !at_.Valid()) {
        end--;
        const List* list = tree_.LastTo(&end);
        Enter(list, end);
        if (!has_list_) return;
        at_.SeekToLast();
      }
    }

    const Tree& tree_;
    List::Iterator at_;
    bool has_list_ = false;
    uint64_t address_ = 0;
    std::string encoded_;
  };

  // Of an entry, or the beginning of one.
  static Slice UserKeyOf(const char* entry) { return ROCKSDB_NAMESPACE::ExtractUserKey(ROCKSDB_NAMESPACE::GetLengthPrefixedSlice(entry)); }

  void VisitFrom(const char* key, void* args, bool (*visit)(void* args, const char* entry)) const {
    const List* list = tree_.At(tree_.AddressOf(UserKeyOf(key)));
    if (list == nullptr) return;
    List::Iterator at(list);
    for (at.Seek(key); at.Valid() && visit(args, at.key()); at.Next()) {
    }
  }

  const std::shared_ptr<LeafBits> bits_;
  Tree tree_;
  // Always empty: makes the nodes of all lists.
  List nodes_;
  std::atomic<uint64_t> entries_{0};
};

class Factory : public MemTableRepFactory {
 public:
  const char* Name() const override { return NAME; }
  bool IsInsertConcurrentlySupported() const override { return true; }
  bool CanHandleDuplicatedKey() const override { return true; }

  using MemTableRepFactory::CreateMemTableRep;
  MemTableRep* CreateMemTableRep(const MemTableRep::KeyComparator& compare, Allocator* allocator, const SliceTransform*,
                                 ROCKSDB_NAMESPACE::Logger*) override {
    return new RadixSkipList(compare, allocator, bits_);
  }

 private:
  const std::shared_ptr<LeafBits> bits_ = std::make_shared<LeafBits>();
};

}  // namespace

// Lets RocksDB's options name the memtable.
extern "C" void tessera_register_radix_skip_list() {
  ROCKSDB_NAMESPACE::ObjectLibrary::Default()->AddFactory<MemTableRepFactory>(
      NAME, [](const std::string&, std::unique_ptr<MemTableRepFactory>* made, std::string*) {
        made->reset(new Factory());
        return made->get();
      });
}
