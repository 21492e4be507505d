// Package config holds the server's settings: their names, defaults, ranges and descriptions, and how they are loaded from
// a YAML file, the environment and the command line.
//
// A setting is a field of Config. Its path is made of the yaml names from the root (redis.pool_size), its environment
// variable of the path (WEIR_REDIS_POOL_SIZE). What a value may be and what it is for stand in the field's tags, so that
// loading, validation and the table of settings for people (Fields, Markdown) cannot disagree:
//
//	yaml    the name in the file
//	doc     what it is for, in one sentence without the final period
//	min,max the range of a number or duration, both ends included
//	oneof   the values that a string, or each element of a list, may have, separated by |
//
// Where a value is given more than once, the command line beats the environment, which beats the file, which beats the
// default. All errors are collected, each names the place of the value, the setting, the value, and what to write instead.
package config
