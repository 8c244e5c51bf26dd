// Runs recordings through WebGPU (Dawn, the implementation of Chrome, whose WGSL compiler is Tint)
// for tests/adapters/dawn.rs.
//
//     node run.mjs FOLDER_WITH_NODE_MODULES [OPTION OF DAWN...]
//
// A message in either direction is two lengths (u32, little-endian), as many bytes of JSON, and as
// many of data. First comes one with the adapter, then one answer to each request.
//
// A request has `kernels` (label: {wgsl, bindings}, those not sent before), `buffers` (sizes) and `commands`:
//     {op: "upload", buffer, offset, size}: takes the next bytes of the data
//     {op: "clear", buffer, offset, size}
//     {op: "copy", from: {buffer, offset}, to: {buffer, offset}, size}
//     {op: "dispatch", kernel, bindings: [{buffer, offset, size}], params: [words], groups}: with all
//         words of the uniform block after the launch header
//     {op: "download", buffer, offset, size}
// Its answer has the downloads' bytes, in order, or `error`.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { readSync, writeSync } from 'node:fs';
import { join, resolve } from 'node:path';

const [folder, ...options] = process.argv.slice(2);
const require = createRequire(join(resolve(folder), 'here.js'));
const { create, globals } = await load();
const { GPUBufferUsage: U, GPUMapMode, GPUShaderStage } = globals;

// What memory holds before it is written: no zeros, and no canonical value.
const POISON = 0xdeadbeef;
// As src/device/submission.rs.
const ALIGNMENT = 256;
const MAX_GROUPS_X = 32768;

async function load() {
  try {
    return await import(pathToFileURL(require.resolve('webgpu')));
  } catch (error) {
    send({ error: error.message });
    process.exit(1);
  }
}

function transfer(operation, view) {
  for (let done = 0; done < view.length; ) {
    let count;
    try {
      count = operation(view.subarray(done));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      // The other end is not ready.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      continue;
    }
    if (count === 0) return false;
    done += count;
  }
  return true;
}

function receive() {
  const read = (size) => {
    const bytes = new Uint8Array(size);
    return transfer((part) => readSync(0, part), bytes) ? bytes : null;
  };
  const lengths = read(8);
  if (lengths === null) return null;
  const view = new DataView(lengths.buffer);
  const [json, data] = [read(view.getUint32(0, true)), read(view.getUint32(4, true))];
  return { request: JSON.parse(new TextDecoder().decode(json)), data };
}

function send(value, parts = []) {
  const json = new TextEncoder().encode(JSON.stringify(value));
  const lengths = new DataView(new ArrayBuffer(8));
  lengths.setUint32(0, json.length, true);
  lengths.setUint32(4, parts.reduce((sum, part) => sum + part.length, 0), true);
  for (const part of [new Uint8Array(lengths.buffer), json, ...parts]) {
    transfer((rest) => writeSync(1, rest), part);
  }
}

const gpu = create(options);
const adapter = await gpu.requestAdapter();
if (adapter === null) {
  send({ error: 'no adapter' });
  process.exit(0);
}
// No limits and no features are asked for: what every browser gives is what the kernels may use.
const device = await adapter.requestDevice();
const faults = [];
device.addEventListener('uncapturederror', (event) => faults.push(event.error.message));
device.lost.then((info) => faults.push(`device lost: ${info.message}`));
const { vendor, device: name, description } = adapter.info;
send({ adapter: [vendor, name, description].join(' ').trim() });

const pipelines = new Map();

async function compile(label, { wgsl, bindings }) {
  const module = device.createShaderModule({ label, code: wgsl });
  const { messages } = await module.getCompilationInfo();
  // Warnings too: they are what later versions refuse.
  const bad = messages.filter((m) => m.type !== 'info');
  if (bad.length > 0) {
    const lines = bad.map((m) => `${m.type}, line ${m.lineNum}: ${m.message}`);
    throw new Error(`${label}: ${lines.join('\n')}`);
  }
  const entries = Array.from({ length: bindings + 1 }, (_, binding) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: binding === 0 ? { type: 'uniform', hasDynamicOffset: true } : { type: 'storage' },
  }));
  const layout = device.createBindGroupLayout({ entries });
  const pipeline = await device.createComputePipelineAsync({
    label,
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: 'main' },
  });
  return { layout, pipeline };
}

function filled(size, usage, fill) {
  const buffer = device.createBuffer({ size, usage, mappedAtCreation: true });
  fill(buffer.getMappedRange());
  buffer.unmap();
  return buffer;
}

function overlap(a, b) {
  return a.buffer === b.buffer && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

async function run({ kernels, buffers, commands }, data) {
  const compiled = Object.entries(kernels).map(async ([label, kernel]) => {
    pipelines.set(label, await compile(label, kernel));
  });
  await Promise.all(compiled);

  const memory = buffers.map((size) =>
    filled(size, U.STORAGE | U.COPY_SRC | U.COPY_DST, (range) => new Uint32Array(range).fill(POISON)),
  );
  const uploads = filled(Math.max(data.length, 4), U.COPY_SRC, (range) => new Uint8Array(range).set(data));
  const dispatches = commands.filter((c) => c.op === 'dispatch');
  const block = (c) => Math.ceil((4 + c.params.length) / 4) * 16;
  const stride = Math.ceil(Math.max(0, ...dispatches.map(block)) / ALIGNMENT) * ALIGNMENT;
  const uniforms = filled((dispatches.length + 1) * Math.max(stride, ALIGNMENT), U.UNIFORM, (range) => {
    dispatches.forEach((c, i) => {
      new Uint32Array(range, i * stride).set([0, c.groups, 0, 0, ...c.params]);
    });
  });
  const results = commands.filter((c) => c.op === 'download');
  const size = results.reduce((sum, c) => sum + c.size, 0);
  const readback = device.createBuffer({ size: Math.max(size, 4), usage: U.MAP_READ | U.COPY_DST });

  const encoder = device.createCommandEncoder();
  let pass = null;
  let [uploaded, dispatched, downloaded] = [0, 0, 0];
  const temporary = [];
  for (const c of commands) {
    if (c.op === 'dispatch') {
      const { layout, pipeline } = pipelines.get(c.kernel);
      const storage = c.bindings.map((range, i) => {
        const { buffer, offset, size } = range;
        if (!c.bindings.slice(i + 1).some((later) => overlap(range, later))) {
          return { buffer: memory[buffer], offset, size };
        }
        // WebGPU refuses bindings that overlap and may be written to. Kernels that work in place
        // read through the first, and get a copy there.
        const copy = device.createBuffer({ size, usage: U.STORAGE | U.COPY_DST });
        temporary.push(copy);
        pass?.end();
        pass = null;
        encoder.copyBufferToBuffer(memory[buffer], offset, copy, 0, size);
        return { buffer: copy, size };
      });
      const resources = [{ buffer: uniforms, size: block(c) }, ...storage];
      const entries = resources.map((resource, binding) => ({ binding, resource }));
      pass ??= encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout, entries }), [dispatched * stride]);
      const y = Math.ceil(c.groups / MAX_GROUPS_X);
      pass.dispatchWorkgroups(Math.ceil(c.groups / y), y);
      dispatched += 1;
      continue;
    }
    pass?.end();
    pass = null;
    switch (c.op) {
      case 'upload':
        encoder.copyBufferToBuffer(uploads, uploaded, memory[c.buffer], c.offset, c.size);
        uploaded += c.size;
        break;
      case 'clear':
        encoder.clearBuffer(memory[c.buffer], c.offset, c.size);
        break;
      case 'copy': {
        // WebGPU has no copies inside one buffer.
        const between = device.createBuffer({ size: c.size, usage: U.COPY_SRC | U.COPY_DST });
        temporary.push(between);
        encoder.copyBufferToBuffer(memory[c.from.buffer], c.from.offset, between, 0, c.size);
        encoder.copyBufferToBuffer(between, 0, memory[c.to.buffer], c.to.offset, c.size);
        break;
      }
      case 'download':
        encoder.copyBufferToBuffer(memory[c.buffer], c.offset, readback, downloaded, c.size);
        downloaded += c.size;
        break;
      default:
        throw new Error(`unknown command ${c.op}`);
    }
  }
  pass?.end();
  device.queue.submit([encoder.finish()]);
  await readback.mapAsync(GPUMapMode.READ);
  const bytes = new Uint8Array(readback.getMappedRange().slice(0, size));
  for (const buffer of [...memory, ...temporary, uploads, uniforms, readback]) buffer.destroy();
  return bytes;
}

for (let message; (message = receive()) !== null; ) {
  const scopes = ['validation', 'out-of-memory', 'internal'];
  scopes.forEach((scope) => device.pushErrorScope(scope));
  let bytes = new Uint8Array();
  try {
    bytes = await run(message.request, message.data);
  } catch (error) {
    faults.push(error.message);
  }
  for (const _ of scopes) {
    const error = await device.popErrorScope();
    if (error !== null) faults.unshift(error.message);
  }
  if (faults.length > 0) send({ error: faults.splice(0).join('; ') });
  else send({}, [bytes]);
}
device.destroy();
process.exit(0);
