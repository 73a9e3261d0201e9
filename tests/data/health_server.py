"""Servers of grpc.health.v1 by grpcio, for tests/kubelet/prober_grpc.rs: prints the ports, ends with its standard input."""
import sys
import threading
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

STATUS = health_pb2.HealthCheckResponse
over = threading.Event()


class Health(health.HealthServicer):
    def Check(self, request, context):
        if request.service == "slow":
            over.wait(4)
        elif request.service == "metadata":
            seen = dict(context.invocation_metadata())
            seen["deadline"] = "yes" if 0 < context.time_remaining() <= 10 else "no"
            context.abort(grpc.StatusCode.ABORTED, f"é {sorted(seen.items())}")
        elif request.service == "deadline":
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "over")
        return super().Check(request, context)


def serve(servicer):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    if servicer:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


servicer = Health()
for service, status in [
    ("", STATUS.SERVING),
    ("up", STATUS.SERVING),
    ("slow", STATUS.SERVING),
    ("down", STATUS.NOT_SERVING),
    ("unknown", STATUS.UNKNOWN),
    ("service-unknown", STATUS.SERVICE_UNKNOWN),
]:
    servicer.set(service, status)
servers = [serve(servicer), serve(None)]
print(*(port for _, port in servers), flush=True)
sys.stdin.read()
over.set()
for server, _ in servers:
    server.stop(None)
