"""Calls a method with each request of stdin (hexadecimal lines) over grpcio and prints each reply, or its status code."""

import sys

import grpc

address, path = sys.argv[1:3]
with grpc.insecure_channel(address) as channel:
    call = channel.unary_unary(path)
    pending = [call.future(bytes.fromhex(line), timeout=20) for line in sys.stdin.read().split("\n")[:-1]]
    for future in pending:
        try:
            print(future.result().hex())
        except grpc.RpcError as error:
            print("code", error.code().value[0])
