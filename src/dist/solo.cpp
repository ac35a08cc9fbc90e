#include "core/error.h"
#include "core/tensor.h"
#include "dist/communicator.h"

namespace fovea::dist {

namespace {

class Solo final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(const View& /*values*/, Reduce /*how*/, Stream& /*stream*/) override {}
  void broadcast(const View& /*values*/, int root, Stream& /*stream*/) override {
    FOVEA_ASSERT(root == 0);
  }
  void all_gather(const View& in, const View& out, Stream& /*stream*/) override { same(in, out); }
  void reduce_scatter(const View& in, const View& out, Stream& /*stream*/) override {
    same(in, out);
  }
  void exchange(const View& send, const View& receive, int peer, Stream& /*stream*/) override {
    FOVEA_ASSERT(peer == 0);
    same(send, receive);
  }
  void barrier() override {}

 private:
  static void same(const View& in, const View& out) {
    if (in.data != out.data && !in.device.is_meta()) copy_host(out, in);
  }
};

}  // namespace

std::unique_ptr<Communicator> solo() {
  return std::make_unique<Solo>();
}

}  // namespace fovea::dist
