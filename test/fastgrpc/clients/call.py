"""Calls a method with each request of stdin (hexadecimal lines) over grpcio and prints each reply, or its status code.

A third argument is the file of the CA that the server's certificate comes from.
"""

import sys

import grpc

address, path, authority = (sys.argv[1:] + [""])[:3]


def connect():
    if not authority:
        return grpc.insecure_channel(address)
    with open(authority, "rb") as file:
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(file.read()))


with connect() as channel:
    call = channel.unary_unary(path)
    pending = [call.future(bytes.fromhex(line), timeout=20) for line in sys.stdin.read().split("\n")[:-1]]
    for future in pending:
        try:
            print(future.result().hex())
        except grpc.RpcError as error:
            print("code", error.code().value[0])
