"""A client of /exec in another language: v5.channel.k8s.io over a unix socket, or over TLS.

exec_client.py SOCKET TARGET      the socket's path, or HOST:PORT:CA:TOKEN; an empty token is none
Each line of standard input is a step; the answers go to standard output, one JSON line each.
"""

import json
import socket
import ssl
import sys

import websocket


def connect(where, target):
    if where.startswith("/"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(60)
        sock.connect(where)
        return websocket.create_connection(
            "ws://podprobe" + target, socket=sock, subprotocols=["v9.channel.k8s.io", "v5.channel.k8s.io"], timeout=60
        )
    host, port, ca, token = where.split(":")
    return websocket.create_connection(
        f"wss://{host}:{port}{target}",
        sslopt={"ca_certs": ca, "cert_reqs": ssl.CERT_REQUIRED},
        header=[f"Authorization: Bearer {token}"] if token else [],
        subprotocols=["v5.channel.k8s.io"],
        timeout=60,
    )


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    try:
        ws = connect(sys.argv[1], sys.argv[2])
    except websocket.WebSocketBadStatusException as e:
        return say(refused=e.status_code)
    say(subprotocol=ws.getsubprotocol())
    seen = {}
    for line in sys.stdin:
        step = json.loads(line)
        if "write" in step:
            ws.send_binary(bytes([0]) + step["write"].encode())
        elif "size" in step:
            ws.send_binary(bytes([4]) + json.dumps(step["size"]).encode())
        elif "close" in step:
            ws.send_binary(bytes([255, step["close"]]))
        elif "fragments" in step:
            data = bytes([0]) + step["fragments"].encode()
            for n, byte in enumerate(data):
                opcode = websocket.ABNF.OPCODE_BINARY if n == 0 else websocket.ABNF.OPCODE_CONT
                fin = 1 if n == len(data) - 1 else 0
                ws.send_frame(websocket.ABNF(fin, 0, 0, 0, opcode, 1, bytes([byte])))
        elif "ping" in step:
            ws.ping(step["ping"])
        elif "until" in step:
            channel, text = step["until"]
            while text not in seen.get(channel, ""):
                if not read(ws, seen):
                    break
            say(channel=channel, text=seen.get(channel, ""))
        elif "end" in step:
            while read(ws, seen):
                pass
            say(seen={str(k): v for k, v in seen.items()}, code=seen.get("code"))
        elif "leave" in step:
            ws.sock.close()
            return


def read(ws, seen):
    opcode, data = ws.recv_data(control_frame=True)
    if opcode == websocket.ABNF.OPCODE_CLOSE:
        seen["code"] = int.from_bytes(data[:2], "big")
        return False
    if opcode == websocket.ABNF.OPCODE_BINARY and data:
        seen[data[0]] = seen.get(data[0], "") + data[1:].decode()
    return True


main()
