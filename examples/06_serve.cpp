// Serves the predictions of a trained model over HTTP:
//
//   06_serve levin_logs/version_0 8080
//   curl --json '[[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]' http://127.0.0.1:8080/predict      # [0,2]
//
// The body is a batch as nested lists of numbers, and the answer is its predictions; a bad body gets status 400 and the
// reason. Several threads handle requests, all on one copy of the weights. SIGTERM and Ctrl-C end the server: a
// thread waits for them, because a signal handler must not call the function that stops the server.
#include <httplib.h>
#include <levin/inference/json_tensor.h>
#include <levin/inference/load_for_inference.h>
#include <levin/levin.h>

#include <csignal>
#include <thread>

int main(int argc, char** argv) {
  return levin::main_guard([&] {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&stops, signal);
    pthread_sigmask(SIG_BLOCK, &stops, nullptr);  // before any thread begins: they all inherit it
    httplib::Server server;
    at::set_num_threads(1);  // for one prediction; requests run on separate threads
    const levin::InferenceModel model = levin::load_for_inference(argc > 1 ? argv[1] : "levin_logs/version_0");
    server.Post("/predict", [&](const httplib::Request& request, httplib::Response& response) {
      try {
        const auto prediction = model.predict(levin::tensor_from_json(request.body));
        response.set_content(levin::tensor_to_json(prediction) + "\n", "application/json");
      } catch (const levin::Error& error) {
        response.status = 400;
        response.set_content(error.what() + std::string("\n"), "text/plain");
      }
    });
    const int port = argc > 2 ? std::stoi(argv[2]) : 8080;
    if (!server.bind_to_port("127.0.0.1", port)) {
      throw levin::Error("cannot listen on port " + std::to_string(port) + ".");
    }
    std::jthread stopper([&](const std::stop_token& ended) {
      int signal = 0;
      sigwait(&stops, &signal);
      while (!server.is_running() && !ended.stop_requested()) std::this_thread::yield();  // not started yet
      server.stop();
    });
    server.listen_after_bind();
    stopper.request_stop();
    pthread_kill(stopper.native_handle(), SIGTERM);  // wakes the thread if it is still waiting
  });
}
