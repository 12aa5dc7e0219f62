// As much of JSON Schema as a form needs. What it does not know is edited as JSON; the server checks all of it anyway.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: Json[];
  const?: Json;
  default?: Json;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  format?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  items?: Schema;
}

export type Kind = 'text' | 'number' | 'switch' | 'choice' | 'group' | 'list' | 'json';

/** How a value of this schema is edited. */
export function kindOf(schema: Schema): Kind {
  if (schema.enum) return 'choice';
  const type = Array.isArray(schema.type) ? schema.type.find((one) => one !== 'null') : schema.type;
  switch (type) {
    case 'string':
      return 'text';
    case 'number':
    case 'integer':
      return 'number';
    case 'boolean':
      return 'switch';
    case 'object':
      return schema.properties && !(schema.additionalProperties && typeof schema.additionalProperties === 'object') ? 'group' : 'json';
    case 'array':
      return schema.items && ['text', 'number', 'choice'].includes(kindOf(schema.items)) ? 'list' : 'json';
    default:
      return 'json';
  }
}

/** What a person may enter, in words. */
export function allowed(schema: Schema): string {
  const said: string[] = [];
  if (schema.minimum !== undefined && schema.maximum !== undefined) said.push(`${schema.minimum} to ${schema.maximum}`);
  else if (schema.minimum !== undefined) said.push(`at least ${schema.minimum}`);
  else if (schema.maximum !== undefined) said.push(`at most ${schema.maximum}`);
  if (schema.format) said.push(schema.format);
  return said.join(', ');
}

export function same(one: Json | undefined, other: Json | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
