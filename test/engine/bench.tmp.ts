import { readFileSync } from 'node:fs'
import { openModel } from '../../src/models/open.ts'
const S='/work/shared/'
const b=Int32Array.from(readFileSync(S+'data/austen-emma.txt').subarray(0,1<<17))
for (const threads of [1,2]) {
  const model = await openModel(S+'models/demo-rwkv7',{threads})
  const best=(label:string,n:number,times:number[])=>console.log(threads,label,(n/Math.min(...times)*1000).toFixed(0),'tok/s', 'median',(n/times.sort((a,b)=>a-b)[times.length>>1]!*1000).toFixed(0))
  for (const nats of [true,false]) { const t=[]; for (let i=0;i<12;i++){const c=model.createContext(); const s=performance.now(); await model.process([{context:c,tokens:b.subarray(i*512,i*512+512),nats}]); t.push(performance.now()-s); c.close()} best('prefill512 nats='+nats,512,t)}
  { const c=model.createContext(); await model.process([{context:c,tokens:b.subarray(0,64),nats:false}]); const t=[]; for(let i=0;i<6;i++){const s=performance.now(); await model.process([{context:c,tokens:new Int32Array(),nats:false,generate:{count:200,temperature:1,topK:0,topP:0.9,seed:1n}}]); t.push(performance.now()-s)} best('decode b1',200,t)}
  { const cs=Array.from({length:32},()=>model.createContext()); for (const c of cs) await model.process([{context:c,tokens:b.subarray(0,64),nats:false}]); const t=[]; for(let i=0;i<4;i++){const s=performance.now(); await model.process(cs.map(context=>({context,tokens:new Int32Array(),nats:false,generate:{count:50,temperature:1,topK:0,topP:0.9,seed:1n}}))); t.push(performance.now()-s)} best('decode b32',1600,t)}
  model.close()
}
