// Upload a body of SIZE bytes to HOST:PORT with node:http, or with node:http2.
import http from 'node:http';
import http2 from 'node:http2';

const [address, how, length] = process.argv.slice(2);
const size = Number(length);

function print(status, answer) {
  let text = '';
  answer.setEncoding('utf8');
  answer.on('data', (piece) => { text += piece; });
  answer.on('end', () => {
    console.log(status);
    console.log(text);
    process.exit(0);
  });
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

if (how.startsWith('http2')) {
  const session = http2.connect(`http://${address}`);
  session.on('error', fail);
  const headers = { ':method': 'POST', ':path': '/' };
  if (how === 'http2') headers['content-length'] = size;
  const stream = session.request(headers);
  stream.on('error', fail);
  stream.on('response', (got) => print(got[':status'], stream));
  stream.end(Buffer.alloc(size, 'x'));
} else {
  const [host, port] = address.split(':');
  const headers = how === 'chunked' ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': size };
  if (how === 'expect') headers.Expect = '100-continue';
  const request = http.request({ host, port, method: 'POST', headers });
  request.on('error', fail);
  request.on('response', (answer) => print(answer.statusCode, answer));
  if (how === 'expect') {
    request.on('continue', () => fail(new Error('was invited')));
    request.flushHeaders();
  } else if (how === 'silent') {
    request.flushHeaders();
  } else {
    request.end(Buffer.alloc(size, 'x'));
  }
}
