// The links of a machine: with who is at the other end, whatever the machine reported.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { links } from '../src/lib/links.ts';

const LEAF = { chassis: '00:1c:73:0a:0b:0c', port: 'Ethernet7', name: 'leaf-3', port_description: 'to the third rack', management: '10.0.0.3', vlan: 110 };

test('a link is shown with the switch and the port at its other end', () => {
  const [one] = links({ links: [{ name: 'eth0', mac: '52:54:00:00:00:01', up: true, speed: 1000 }], lldp: { eth0: LEAF } });
  assert.deepEqual(one, {
    name: 'eth0',
    mac: '52:54:00:00:00:01',
    up: true,
    speed: 1000,
    neighbour: { who: 'leaf-3', port: 'Ethernet7', more: 'to the third rack, VLAN 110, managed at 10.0.0.3, chassis 00:1c:73:0a:0b:0c' },
  });
});

test('a switch without a name goes by its chassis', () => {
  const [one] = links({ lldp: { eth0: { chassis: '00:1c:73:0a:0b:0c', port: '7' } } });
  assert.deepEqual(one?.neighbour, { who: '00:1c:73:0a:0b:0c', port: '7', more: '' });
});

test('links are in the order people count in, also those of which only a neighbour is known', () => {
  const found = links({ links: [{ name: 'eth10', mac: 'a' }, { name: 'eth2', mac: 'b' }], lldp: { eth3: LEAF } });
  assert.deepEqual(found.map((one) => one.name), ['eth2', 'eth3', 'eth10']);
});

test('a link that says no speed has none', () => {
  assert.equal(links({ links: [{ name: 'eth0', speed: -1 }] })[0]?.speed, 0);
});

test('whatever a machine reports, nothing breaks', () => {
  for (const odd of [null, undefined, 7, 'x', [], {}, { links: 'x', lldp: [] }, { links: [null, 7, [], {}], lldp: { eth0: null, eth1: 'x', eth2: { chassis: 1, port: {} } } }]) {
    assert.deepEqual(links(odd), []);
  }
});
