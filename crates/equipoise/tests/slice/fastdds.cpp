// A client of the slice level that uses Fast DDS: publishes COUNT items and prints the id and text
// of each reply.
//
// fastdds-client DOMAIN SLICES COUNT WORKERS ITEMS REPLIES ITEM_TYPE REPLY_TYPE keyed|keyless
// shm|udp
//
// The types are written by hand, as `fastddsgen` would generate them: the generator needs Java.
// Debian: libfastrtps-dev.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastdds/rtps/transport/shared_mem/SharedMemTransportDescriptor.h>

using namespace eprosima::fastdds::dds;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;

namespace {

constexpr int32_t SENDER = 77;
// The ids of items whose replies are not printed begin here.
constexpr int64_t FIRST_PROBE = 1 << 30;
constexpr uint32_t HEADER = 4;
constexpr uint32_t MESSAGE_MAX = 1024;
constexpr auto PATIENCE = std::chrono::seconds(40);

// Both types, with all members: a reply has no slice.
struct Sample {
    int32_t slice = 0;
    int64_t id = 0;
    int32_t sender = 0;
    int64_t timestamp = 0;
    std::string message;
};

// CDR version 1, little-endian, of final types. The offset counts from behind the header.
class Cdr {
public:
    Cdr(unsigned char* bytes, uint32_t size) : bytes_(bytes), size_(size) {}

    template <class T> bool put(T value) {
        if (!align(sizeof(T)) || at_ + sizeof(T) > size_) return false;
        memcpy(bytes_ + at_, &value, sizeof(T));
        at_ += sizeof(T);
        return true;
    }
    bool put(const std::string& text) {
        if (!put(uint32_t(text.size())) || at_ + text.size() > size_) return false;
        memcpy(bytes_ + at_, text.data(), text.size());
        at_ += text.size();
        return true;
    }
    template <class T> bool get(T& value) {
        if (!align(sizeof(T)) || at_ + sizeof(T) > size_) return false;
        memcpy(&value, bytes_ + at_, sizeof(T));
        at_ += sizeof(T);
        return true;
    }
    bool get(std::string& text) {
        uint32_t length = 0;
        if (!get(length) || length > size_ - at_) return false;
        text.assign(reinterpret_cast<char*>(bytes_) + at_, length);
        at_ += length;
        return true;
    }
    uint32_t length() const { return at_; }

private:
    bool align(uint32_t to) {
        at_ = (at_ + to - 1) / to * to;
        return at_ <= size_;
    }

    unsigned char* bytes_;
    uint32_t size_;
    uint32_t at_ = 0;
};

class Type : public TopicDataType {
public:
    Type(const char* name, bool is_reply, bool keyed) : is_reply_(is_reply) {
        setName(name);
        m_typeSize = HEADER + 48 + MESSAGE_MAX;
        m_isGetKeyDefined = keyed;
        auto_fill_type_object(false);
        auto_fill_type_information(false);
    }

    bool serialize(void* data, SerializedPayload_t* payload) override {
        auto& sample = *static_cast<Sample*>(data);
        const unsigned char header[HEADER] = {0, 1, 0, 0};
        if (payload->max_size < HEADER) return false;
        memcpy(payload->data, header, HEADER);
        Cdr cdr(payload->data + HEADER, payload->max_size - HEADER);
        if (!(is_reply_ ? put_reply(cdr, sample) : put_item(cdr, sample))) return false;
        payload->encapsulation = CDR_LE;
        payload->length = HEADER + cdr.length();
        return true;
    }
    bool deserialize(SerializedPayload_t* payload, void* data) override {
        auto& sample = *static_cast<Sample*>(data);
        if (payload->length < HEADER || payload->data[1] != 1) return false;
        Cdr cdr(payload->data + HEADER, payload->length - HEADER);
        const bool whole = is_reply_
            ? cdr.get(sample.id) && cdr.get(sample.timestamp) && cdr.get(sample.sender)
            : cdr.get(sample.slice) && cdr.get(sample.id) && cdr.get(sample.sender) && cdr.get(sample.timestamp);
        return whole && cdr.get(sample.message);
    }
    std::function<uint32_t()> getSerializedSizeProvider(void* data) override {
        const auto length = static_cast<Sample*>(data)->message.size();
        return [length] { return uint32_t(HEADER + 48 + length); };
    }
    void* createData() override { return new Sample; }
    void deleteData(void* data) override { delete static_cast<Sample*>(data); }

    // DDSI-RTPS 9.6.3.8: a key of at most 16 bytes is its own hash, big-endian.
    bool getKey(void* data, InstanceHandle_t* handle, bool) override {
        if (!m_isGetKeyDefined) return false;
        const auto& sample = *static_cast<Sample*>(data);
        const int bytes = is_reply_ ? 8 : 4;
        const auto key = is_reply_ ? uint64_t(sample.id) : uint64_t(uint32_t(sample.slice));
        for (int i = 0; i < 16; i++) handle->value[i] = i < bytes ? (key >> (8 * (bytes - 1 - i))) & 0xff : 0;
        return true;
    }

private:
    static bool put_item(Cdr& cdr, const Sample& sample) {
        return cdr.put(sample.slice) && cdr.put(sample.id) && cdr.put(sample.sender) && cdr.put(sample.timestamp)
            && cdr.put(sample.message);
    }
    static bool put_reply(Cdr& cdr, const Sample& sample) {
        return cdr.put(sample.id) && cdr.put(sample.timestamp) && cdr.put(sample.sender) && cdr.put(sample.message);
    }

    bool is_reply_;
};

[[noreturn]] void fail(const std::string& why) {
    fprintf(stderr, "%s\n", why.c_str());
    exit(1);
}

void until(const char* what, const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + PATIENCE;
    while (!holds()) {
        if (std::chrono::steady_clock::now() > end) fail(what);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

// On loopback alone; `shm`: shared memory as well, as Fast DDS has it by default.
DomainParticipant* join(uint32_t domain, bool shm) {
    using namespace eprosima::fastdds::rtps;
    DomainParticipantQos qos;
    qos.transport().use_builtin_transports = false;
    if (shm) qos.transport().user_transports.push_back(std::make_shared<SharedMemTransportDescriptor>());
    auto udp = std::make_shared<UDPv4TransportDescriptor>();
    udp->interfaceWhiteList.push_back("127.0.0.1");
    qos.transport().user_transports.push_back(udp);
    // A participant that is slow because the machine is busy is not taken for dead.
    qos.wire_protocol().builtin.discovery_config.leaseDuration = {20, 0};
    qos.wire_protocol().builtin.discovery_config.leaseDuration_announcementperiod = {1, 0};
    auto* participant = DomainParticipantFactory::get_instance()->create_participant(domain, qos);
    if (!participant) fail("no participant could be created");
    return participant;
}

// Reliable, all kept. By default Fast DDS keeps ten instances: a topic with a key needs more. A
// keyed writer of 2.9 takes nothing where they are LENGTH_UNLIMITED.
template <class Qos> Qos lossless(Qos qos) {
    qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
    qos.reliability().max_blocking_time = {10, 0};
    qos.durability().kind = VOLATILE_DURABILITY_QOS;
    qos.history().kind = KEEP_ALL_HISTORY_QOS;
    qos.resource_limits().max_instances = 10000;
    qos.resource_limits().max_samples_per_instance = 10000;
    qos.resource_limits().max_samples = 10000 * 10000;
    return qos;
}

// Publishes items until each slice has answered one. A worker may discover this writer later than
// this writer has discovered the worker, and does not receive what was published before.
void meet_workers(DataWriter& items, DataReader& replies, int slices) {
    std::set<int64_t> silent;
    for (int slice = 0; slice < slices; slice++) silent.insert(slice);
    int64_t id = FIRST_PROBE;
    int looks = 0;
    until("not all slices answer", [&] {
        for (int64_t slice : looks++ % 40 == 0 ? silent : std::set<int64_t>()) {
            Sample item;
            item.slice = int32_t(slice), item.id = id++, item.sender = SENDER, item.timestamp = slice;
            if (!items.write(&item)) fail("an item was not taken");
        }
        Sample reply;
        SampleInfo info;
        while (replies.take_next_sample(&reply, &info) == ReturnCode_t::RETCODE_OK) {
            if (info.valid_data && reply.sender == SENDER) silent.erase(reply.timestamp);
        }
        return silent.empty();
    });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 11) fail("usage: DOMAIN SLICES COUNT WORKERS ITEMS REPLIES ITEM_TYPE REPLY_TYPE keyed|keyless shm|udp");
    const int slices = atoi(argv[2]), count = atoi(argv[3]), workers = atoi(argv[4]);
    const bool keyed = std::string(argv[9]) == "keyed", shm = std::string(argv[10]) == "shm";
    auto* participant = join(uint32_t(atoi(argv[1])), shm);
    TypeSupport item_type(new Type(argv[7], false, keyed)), reply_type(new Type(argv[8], true, keyed));
    item_type.register_type(participant);
    reply_type.register_type(participant);
    auto* items = participant->create_topic(argv[5], argv[7], TOPIC_QOS_DEFAULT);
    auto* replies = participant->create_topic(argv[6], argv[8], TOPIC_QOS_DEFAULT);
    auto* publisher = participant->create_publisher(PUBLISHER_QOS_DEFAULT);
    auto* subscriber = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
    auto* reader = subscriber->create_datareader(replies, lossless(DATAREADER_QOS_DEFAULT));
    auto* writer = publisher->create_datawriter(items, lossless(DATAWRITER_QOS_DEFAULT));
    if (!writer || !reader) fail("no writer or reader could be created");
    until("not all workers are there", [&] {
        PublicationMatchedStatus readers;
        SubscriptionMatchedStatus writers;
        writer->get_publication_matched_status(readers);
        reader->get_subscription_matched_status(writers);
        return readers.current_count >= workers && writers.current_count >= workers;
    });
    meet_workers(*writer, *reader, slices);
    for (int id = 0; id < count; id++) {
        Sample item;
        item.slice = id % slices, item.id = id, item.sender = SENDER, item.timestamp = 1000 + id;
        item.message = "item " + std::to_string(id);
        if (!writer->write(&item)) fail("item " + std::to_string(id) + " was not taken");
    }
    std::map<int64_t, std::string> answered;
    until("replies are missing", [&] {
        Sample reply;
        SampleInfo info;
        while (reader->take_next_sample(&reply, &info) == ReturnCode_t::RETCODE_OK) {
            // Replies go to all clients of the stream.
            if (!info.valid_data || reply.sender != SENDER || reply.id >= FIRST_PROBE) continue;
            if (reply.timestamp != 1000 + reply.id) fail("the reply of another item");
            if (!answered.emplace(reply.id, reply.message).second) fail("a second reply");
        }
        return answered.size() == size_t(count);
    });
    for (const auto& [id, text] : answered) printf("%ld %s\n", long(id), text.c_str());
    participant->delete_contained_entities();
    DomainParticipantFactory::get_instance()->delete_participant(participant);
    return 0;
}
