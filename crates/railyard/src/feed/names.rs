//! A payment's fields: how the API calls them, and where they stand in a pain.001.

/// The fields of a payment, and whether each must be there.
pub(super) const FIELDS: [(&str, bool); 12] = [
    ("paymentId", true),
    ("debtorName", true),
    ("debtorIban", true),
    ("debtorBic", false),
    ("creditorName", true),
    ("creditorIban", true),
    ("creditorBic", false),
    ("amount", true),
    ("currency", true),
    ("requestedTime", false),
    ("endToEndId", false),
    ("remittanceInformation", false),
];

/// The element that a field was taken from; the field itself if it is none of those.
pub(crate) fn element_of(field: &str) -> &str {
    match field {
        "paymentId" => "GrpHdr/MsgId",
        "debtorName" => "PmtInf/Dbtr/Nm",
        "debtorIban" => "PmtInf/DbtrAcct/Id/IBAN",
        "debtorBic" => "PmtInf/DbtrAgt/FinInstnId",
        "creditorName" => "CdtTrfTxInf/Cdtr/Nm",
        "creditorIban" => "CdtTrfTxInf/CdtrAcct/Id/IBAN",
        "creditorBic" => "CdtTrfTxInf/CdtrAgt/FinInstnId",
        "amount" => "CdtTrfTxInf/Amt/InstdAmt",
        "currency" => "CdtTrfTxInf/Amt/InstdAmt/@Ccy",
        "requestedTime" => "PmtInf/ReqdExctnDt",
        "endToEndId" => "CdtTrfTxInf/PmtId/EndToEndId",
        "remittanceInformation" => "CdtTrfTxInf/RmtInf",
        other => other,
    }
}
