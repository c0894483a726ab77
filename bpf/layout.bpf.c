// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Not a program, and never loaded: the type information of this object has every struct of the
 * layout, for the test that compares them with their Rust mirror
 * (crates/levels/packet/tests/layout.rs).
 */
#include "compat.h"

struct {
	struct eqp_tables_header tables_header;
	struct eqp_copy_header copy_header;
	struct eqp_directory directory;
	struct eqp_vip vip;
	struct eqp_range range;
	struct eqp_mac mac;
	struct eqp_reverse reverse;
	struct eqp_service service;
	struct eqp_access_change access_change;
	struct eqp_quic_config quic_config;
	struct eqp_quic_server quic_server;
	struct eqp_backend backend;
	struct eqp_source source;
	struct eqp_source_set source_set;
	struct eqp_port port;
	struct eqp_state_header state_header;
	struct eqp_load load;
	struct eqp_sender sender;
	struct eqp_counter counter;
	struct eqp_event event;
	struct eqp_cpu cpu;
	struct eqp_heavy heavy;
	struct eqp_sketch sketch;
	struct eqp_capture capture;
	struct eqp_captured captured;
	struct eqp_pending_share pending_share;
	struct eqp_opening opening;
	struct eqp_fragment_key fragment_key;
	struct eqp_fragment fragment;
	struct eqp_decapsulation decapsulation;
	struct eqp_decapsulation_backend decapsulation_backend;
	enum eqp_decapsulated decapsulated;
	enum eqp_vip_kind vip_kind;
	enum eqp_forward forward;
	enum eqp_key key;
	enum eqp_pick pick;
	enum eqp_quic_form quic_form;
	enum eqp_event_kind event_kind;
	enum eqp_how how;
	enum eqp_reason reason;
} layouts;
