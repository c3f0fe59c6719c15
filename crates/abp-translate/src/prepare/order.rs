//! Who speaks when: instructions, the first and the last message.

use abp_core::ir::{IrContentBlock, IrConversation, IrMessage, IrRole, Leaf, Origin};
use abp_dialect::{DialectRules, How, MidSystem};

use super::Fit;

/// Puts instructions where the target takes them, in a role it has.
pub(super) fn place_instructions(
    conversation: &mut IrConversation,
    rules: &DialectRules,
    fit: &mut Fit<'_>,
) {
    if !rules.developer_role {
        for message in &mut conversation.messages {
            if message.role == IrRole::Developer {
                message.role = IrRole::System;
                let role = fit.member(message.origin, "role");
                let how =
                    How::degraded("developer_role", "the target has one role for instructions");
                fit.carried(role, how);
                message.origin = Origin::Host;
            }
        }
    }
    let leading = leading_instructions(&conversation.messages);
    match rules.mid_system {
        MidSystem::Kept => {}
        MidSystem::UserText => as_user_text(&mut conversation.messages, leading, fit),
        MidSystem::Hoisted => hoist(&mut conversation.messages, leading, fit),
    }
}

fn is_instruction(message: &IrMessage) -> bool {
    matches!(message.role, IrRole::System | IrRole::Developer)
}

fn leading_instructions(messages: &[IrMessage]) -> usize {
    messages
        .iter()
        .take_while(|message| is_instruction(message))
        .count()
}

fn as_user_text(messages: &mut [IrMessage], leading: usize, fit: &mut Fit<'_>) {
    for message in messages.iter_mut().skip(leading) {
        if !is_instruction(message) {
            continue;
        }
        let how = How::degraded(
            "mid_conversation_system",
            "the target takes instructions at the start only; the user says it, marked as such",
        );
        fit.carried(fit.member(message.origin, "role"), how);
        let marker = Leaf::new(
            "[system instruction]".to_owned(),
            Origin::Made("system_marker"),
        );
        message
            .content
            .insert(0, IrContentBlock::text(marker).into());
        message.role = IrRole::User;
        message.plain = false;
        message.origin = Origin::Host;
    }
}

fn hoist(messages: &mut Vec<IrMessage>, leading: usize, fit: &mut Fit<'_>) {
    let said = messages.split_off(leading);
    let (mut instructions, rest): (Vec<_>, Vec<_>) = said.into_iter().partition(is_instruction);
    for message in &mut instructions {
        let how = How::degraded(
            "system_hoisted",
            "the target takes instructions outside the conversation only; its place is lost",
        );
        fit.carried(message.origin, how);
        message.origin = Origin::Host;
    }
    messages.append(&mut instructions);
    messages.extend(rest);
}

/// Sees to it that the user speaks first, and says so where an answer was begun already.
pub(super) fn start_and_end(
    conversation: &mut IrConversation,
    rules: &DialectRules,
    fit: &mut Fit<'_>,
) {
    let start = leading_instructions(&conversation.messages);
    let first = conversation.messages.get(start).map(|message| message.role);
    if rules.user_first && matches!(first, Some(IrRole::Assistant | IrRole::Tool)) {
        let text = Leaf::new(
            "(continued)".to_owned(),
            Origin::Made("placeholder_message"),
        );
        let placeholder = IrMessage {
            plain: true,
            ..IrMessage::new(IrRole::User, vec![IrContentBlock::text(text)])
        };
        conversation.messages.insert(start, placeholder);
    }
    let Some(last) = conversation.messages.last() else {
        return;
    };
    let calls =
        |block: &abp_core::ir::IrBlock| matches!(block.body, IrContentBlock::ToolUse { .. });
    if !rules.prefill && last.role == IrRole::Assistant && !last.content.iter().any(calls) {
        fit.unsupported(
            last.origin,
            "assistant_prefill",
            "the target does not continue an answer that was begun for it",
        );
    }
}
