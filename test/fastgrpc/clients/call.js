// Calls a method with each request of stdin (hexadecimal lines) over @grpc/grpc-js and prints each reply, or its status code.
// The third argument is where packages are, the fourth the file of the CA that the server's certificate comes from, if there is any.
const { readFileSync } = require("node:fs");
const grpc = require(process.argv[4] + "/@grpc/grpc-js");

const [address, path, , authority] = process.argv.slice(2);
const credentials = authority ? grpc.credentials.createSsl(readFileSync(authority)) : grpc.credentials.createInsecure();
const client = new grpc.Client(address, credentials);
const same = (bytes) => bytes;
const requests = readFileSync(0, "utf8").split("\n").slice(0, -1);
const calls = requests.map((line) => new Promise((resolve) => {
  const options = { deadline: Date.now() + 20000 };
  client.makeUnaryRequest(path, same, same, Buffer.from(line, "hex"), new grpc.Metadata(), options,
    (error, reply) => resolve(error ? `code ${error.code}` : reply.toString("hex")));
}));
Promise.all(calls).then((answers) => {
  console.log(answers.join("\n"));
  client.close();
});
